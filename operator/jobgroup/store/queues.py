"""Queues in general: their backlogs, their new events, and the names of connected clients."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup.definition.plan import pack
from jobgroup.model import names
from jobgroup.model.backlog import Backlog
from jobgroup.store.connection import is_transient, lists_all_clients
from jobgroup.store.observer import SILENT, Observer
from jobgroup.store.replies import read_value
from jobgroup.store.scripts import FOLDER, load

# redis-py 8 ends a read after five seconds, and a new WorkerPool waits for the end of a read.
MAX_BLOCK_SECONDS = 2
# List connections at most this often, and for at most 1 / SHARE of the time: CLIENT LIST is
# expensive for a Redis with many clients.
LISTEN_SECONDS = 3.0
SHARE = 100
_NAME = re.compile(r" name=(\S*)")


class Queues:
    """The queues of one Redis; read only."""

    def __init__(
        self, redis: Redis, prefix: str, folder: Path = FOLDER, observer: Observer = SILENT
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._read_backlog = load("read_backlog", folder, observer)
        self._names: frozenset[str] | None = None
        self._name_again_at = float("-inf")
        self._naming = asyncio.Lock()

    async def backlogs(self, queues: Sequence[tuple[str, int]]) -> list[Backlog | str]:
        """Read the backlog of each queue.

        A queue is given with the milliseconds within which a delayed job counts as due. The result
        for a queue that cannot be read is the reason.
        """
        replies = await self._read_backlog(
            self._redis,
            marker=names.marker_key(self._prefix),
            prefix=self._prefix,
            queues=pack([{"queue": queue, "horizon": horizon} for queue, horizon in queues]),
        )
        return [
            str(reply)
            if isinstance(reply, Exception)
            else read_value(Backlog, f"Queue {queue}", reply)
            for (queue, _), reply in zip(queues, replies, strict=True)
        ]

    async def stirred(self, seen: Mapping[str, str], seconds: float) -> set[str]:
        """Return the queues with an event after the given one; wait this time for the first."""
        streams = {names.events_key(self._prefix, queue): queue for queue in seen}
        ids = {key: seen[queue] for key, queue in streams.items()}
        block = max(1, int(min(seconds, MAX_BLOCK_SECONDS) * 1000))
        reply = await self._redis.xread(cast(Any, ids), count=1, block=block)
        return {streams[str(key)] for key, _ in cast(list[tuple[str, Any]], reply or [])}

    async def connections(self) -> frozenset[str] | None:
        """Return the names of all connections, or None if Redis does not list them all."""
        if not lists_all_clients(self._redis):
            return None
        async with self._naming:
            began = time.monotonic()
            if began >= self._name_again_at:
                try:
                    # Not client_list(), which parses every field of 10,000 lines: 90 ms, not 10.
                    listed = await cast(Any, self._redis).execute_command("CLIENT", "LIST")
                    self._names = frozenset(_NAME.findall(listed))
                except ResponseError as refusal:  # an ACL, or a provider without this command
                    if is_transient(refusal):
                        raise
                    self._names = None
                now = time.monotonic()
                self._name_again_at = now + max(LISTEN_SECONDS, SHARE * (now - began))
            return self._names
