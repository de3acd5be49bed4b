"""What is asked of Redis about queues as such: what waits in them, what stirs, and who listens."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup import keys
from jobgroup.connection import is_transient
from jobgroup.observer import SILENT, Observer
from jobgroup.plan import pack
from jobgroup.replicas import Backlog
from jobgroup.scripts import FOLDER, load

# redis-py 8 gives up on a read after five, and a pool that is new waits this long to be seen.
MAX_BLOCK_SECONDS = 2
# The connections of a Redis are listed at most this often: it is work for a busy one.
LISTEN_SECONDS = 3.0


def now_ms() -> int:
    """Return the time as BullMQ counts it."""
    return time.time_ns() // 1_000_000


class Queues:
    """The queues of one Redis, read and never written."""

    def __init__(
        self, redis: Redis, prefix: str, folder: Path = FOLDER, observer: Observer = SILENT
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._read_backlog = load("read_backlog", folder, observer)
        self._names: frozenset[str] | None = None
        self._named_at = float("-inf")
        self._naming = asyncio.Lock()

    async def backlogs(self, queues: Sequence[tuple[str, int]]) -> list[Backlog | str]:
        """Read what waits in each of these queues; what is due within so many ms counts as due.

        A queue that cannot be read is answered with a text that says why.
        """
        rows = await self._read_backlog(
            self._redis,
            marker=keys.marker(self._prefix),
            prefix=self._prefix,
            queues=pack(queues),
        )
        return [row if isinstance(row, str) else Backlog.parse(row) for row in rows]

    async def stirred(self, seen: Mapping[str, str], seconds: float) -> set[str]:
        """Wait so long for an event in any of these queues after the one last seen; name them."""
        streams = {keys.events(self._prefix, queue): queue for queue in seen}
        ids = {key: seen[queue] for key, queue in streams.items()}
        block = max(1, int(min(seconds, MAX_BLOCK_SECONDS) * 1000))
        answer = await self._redis.xread(cast(Any, ids), count=1, block=block)
        return {streams[str(key)] for key, _ in cast(list[tuple[str, Any]], answer or [])}

    async def connections(self) -> frozenset[str] | None:
        """Return what the connections call themselves, or nothing if that is not told to us."""
        async with self._naming:
            if time.monotonic() >= self._named_at + LISTEN_SECONDS:
                try:
                    listed = await self._redis.client_list()
                    self._names = frozenset(each.get("name", "") for each in listed)
                except ResponseError as refusal:  # an ACL, or a provider that has no such command
                    if is_transient(refusal):
                        raise
                    self._names = None
                self._named_at = time.monotonic()
            return self._names
