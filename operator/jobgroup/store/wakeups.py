"""The wake-up list, and the groups that wait until a worker puts them there. Drivers call it."""

from pathlib import Path
from typing import cast

from redis.asyncio import Redis

from jobgroup.model import names
from jobgroup.model.clock import now_ms
from jobgroup.store.observer import SILENT, Observer
from jobgroup.store.scripts import FOLDER, load


class Wakeups:
    """The wake-up list of one Redis.

    An entry is the id of a group, or of the pseudo parent of its undos. Settling the group removes
    the entry.
    """

    def __init__(
        self, redis: Redis, prefix: str, folder: Path = FOLDER, observer: Observer = SILENT
    ) -> None:
        self._redis = redis
        self._list = names.wakeups_key(prefix)
        self._marker = names.marker_key(prefix)
        self._parked = names.parked_key(prefix)
        self._read_parked = load("read_parked", folder, observer)

    async def first(self, limit: int) -> list[str]:
        """Return the first entries of the list."""
        return cast(list[str], await self._redis.lrange(self._list, 0, limit - 1))

    async def wait(self, seconds: float) -> None:
        """Block until a stock worker adds to the list, at most for this time."""
        await self._redis.bzpopmin(self._marker, seconds)

    async def parked(self, failed: bool = False) -> list[str]:
        """Return the parked groups that have not ended, and those that failed if asked."""
        found = await self._read_parked(self._redis, parked=self._parked, failed=int(failed))
        return cast(list[str], found)

    async def set_aside(self, entry: str) -> None:
        """Park the group of an entry that cannot be settled; the next resync tries it again."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.zadd(self._parked, {names.group_of_wakeup(entry): now_ms()})
        pipeline.lrem(self._list, 1, entry)
        await pipeline.execute()
