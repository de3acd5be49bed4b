"""Streams: the events of a queue, and the changes of an owner's groups.

Readers do not remove entries; each reader keeps a checkpoint of its own.
"""

from typing import Any, cast

from redis.asyncio import Redis

from jobgroup.model import names
from jobgroup.store.queues import MAX_BLOCK_SECONDS

# Entries read at a time.
MAX_ENTRIES = 1000
# Before the first entry of a stream.
START = "0-0"


class Streams:
    """The streams of one Redis."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    async def changes(self, owner: str, after: str, seconds: float) -> list[tuple[str, str]]:
        """Return entries and group ids after an entry; wait this time for the first."""
        block = max(1, int(min(seconds, MAX_BLOCK_SECONDS) * 1000))
        entries = await self._entries(names.owner_changes_key(self._prefix, owner), after, block)
        return [(entry, fields["group"]) for entry, fields in entries]

    async def newest_change(self, owner: str) -> str:
        """Return the newest entry of an owner's changes."""
        return await self._newest(names.owner_changes_key(self._prefix, owner))

    async def read_checkpoint(self, owner: str, reader: str) -> str:
        """Return the entry after which a reader of an owner's changes has to begin."""
        return str(
            await self._redis.hget(names.checkpoints_key(self._prefix, owner), reader) or START
        )

    async def save_checkpoint(self, owner: str, reader: str, entry: str) -> None:
        """Store the entry after which a reader of an owner's changes begins the next time."""
        await self._redis.hset(names.checkpoints_key(self._prefix, owner), reader, entry)

    async def newest_event(self, queue: str) -> str:
        """Return the id of the newest event of a queue."""
        return await self._newest(names.events_key(self._prefix, queue))

    async def read_stream(
        self, queue: str, last_id: str, block: int
    ) -> tuple[str, list[tuple[str, dict[str, str]]]]:
        """Return the id of the last event read, and the events after an id; wait for the first."""
        entries = await self._entries(names.events_key(self._prefix, queue), last_id, block)
        return (entries[-1][0] if entries else last_id), entries

    async def _newest(self, stream: str) -> str:
        newest = await self._redis.xrevrange(stream, count=1)
        return str(cast(list[Any], newest)[0][0]) if newest else START

    async def _entries(
        self, stream: str, after: str, block: int
    ) -> list[tuple[str, dict[str, str]]]:
        reply = await self._redis.xread({stream: after}, count=MAX_ENTRIES, block=block)
        return cast(list[Any], reply)[0][1] if reply else []
