"""What Redis tells in streams: the events of a queue, and which groups of an owner changed.

Nobody takes anything off a stream: each reader goes on from a place of its own.
"""

from typing import Any, cast

from redis.asyncio import Redis

from jobgroup import keys
from jobgroup.queues import MAX_BLOCK_SECONDS

# So many entries of a stream are read at a time.
MOST_ENTRIES = 1000
# Before the first entry of a stream.
START = "0-0"


class Streams:
    """The streams of one Redis."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    async def changes(self, owner: str, after: str, seconds: float) -> list[tuple[str, str]]:
        """Wait so long for groups of an owner to change after an entry; return entries and ids."""
        block = max(1, int(min(seconds, MAX_BLOCK_SECONDS) * 1000))
        entries = await self._entries(keys.changed(self._prefix, owner), after, block)
        return [(entry, fields["group"]) for entry, fields in entries]

    async def newest_change(self, owner: str) -> str:
        """Return the newest entry about an owner's groups."""
        return await self._newest(keys.changed(self._prefix, owner))

    async def place(self, owner: str, reader: str) -> str:
        """Return the entry after which a reader of an owner's changes has to begin."""
        return str(await self._redis.hget(keys.heard(self._prefix, owner), reader) or START)

    async def keep_place(self, owner: str, reader: str, entry: str) -> None:
        """Have a reader of an owner's changes begin after this entry the next time."""
        await self._redis.hset(keys.heard(self._prefix, owner), reader, entry)

    async def newest_event(self, queue: str) -> str:
        """Return the id of the newest entry of a queue's events."""
        return await self._newest(keys.events(self._prefix, queue))

    async def read_stream(
        self, queue: str, last_id: str, block: int
    ) -> tuple[str, list[tuple[str, dict[str, str]]]]:
        """Wait for entries of a queue's events after an id; return the last one's id with them."""
        entries = await self._entries(keys.events(self._prefix, queue), last_id, block)
        return (entries[-1][0] if entries else last_id), entries

    async def _newest(self, stream: str) -> str:
        newest = await self._redis.xrevrange(stream, count=1)
        return str(cast(list[Any], newest)[0][0]) if newest else START

    async def _entries(
        self, stream: str, after: str, block: int
    ) -> list[tuple[str, dict[str, str]]]:
        answer = await self._redis.xread({stream: after}, count=MOST_ENTRIES, block=block)
        return cast(list[Any], answer)[0][1] if answer else []
