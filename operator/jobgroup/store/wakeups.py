"""The wake-up list: BullMQ adds a group to it when a member fails or the last one ends.

An entry is the id of a group, or of the pseudo parent of its undos. Settling the group removes the
entry.
"""

from redis.asyncio import Redis

from jobgroup.model import names
from jobgroup.model.clock import now_ms


class Wakeups:
    """The wake-up list of one Redis. Drivers call it."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._list = names.wakeups_key(prefix)
        self._marker = names.marker_key(prefix)
        self._parked = names.parked_key(prefix)

    async def wait(self, seconds: float) -> None:
        """Block until a stock worker adds to the list, at most for this time."""
        await self._redis.bzpopmin(self._marker, seconds)

    async def set_aside(self, entry: str) -> None:
        """Park the group of an entry that cannot be settled; the resync tries it again."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.zadd(self._parked, {names.group_of_wakeup(entry): now_ms()})
        pipeline.lrem(self._list, 1, entry)
        await pipeline.execute()
