"""The wake-up list: BullMQ adds a group to it when a member fails or the last one ends.

An entry is the id of a group, or of the pseudo parent of its undos. Settling the group removes the
entry.
"""

from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from jobgroup.model import names
from jobgroup.model.clock import GRACE, now_ms
from jobgroup.store.observer import SILENT, Observer
from jobgroup.store.replies import SettleResult, read_settled
from jobgroup.store.scripts import FOLDER, load


class Wakeups:
    """The wake-up list of one Redis. Drivers call it."""

    def __init__(
        self, redis: Redis, prefix: str, folder: Path = FOLDER, observer: Observer = SILENT
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._observer = observer
        self._settle = load("settle_wakeups", folder, observer)
        self._list = names.wakeups_key(prefix)
        self._marker = names.marker_key(prefix)
        self._parked = names.parked_key(prefix)
        self._events = names.events_key(prefix, names.LEDGER_QUEUE)

    async def settle(
        self, skip: int = 0, limit: int = 1, grace: int = GRACE, snapshots: bool = False
    ) -> list[tuple[str, SettleResult]]:
        """Settle the first groups of the list; return each entry with its result."""
        slots = self._slots(skip, limit, grace, snapshots)
        return self._results(await self._settle(self._redis, **slots))

    async def wait_and_settle(
        self, seconds: float, limit: int = 1, grace: int = GRACE, snapshots: bool = False
    ) -> list[tuple[str, SettleResult]]:
        """Wait until a stock worker adds to the list, at most for this time, and settle.

        Both commands are sent at once. Redis runs the second as soon as the first returns, before
        the worker that failed a job can start another one.
        """
        slots = self._slots(0, limit, grace, snapshots)
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.execute_command("BZPOPMIN", self._marker, seconds)
        pipeline.execute_command(*self._settle.command(**slots))
        woken, replies = await pipeline.execute(raise_on_error=False)
        # Both replies arrive together, so the time of the script alone is unknown.
        self._observer.script_answered(self._settle.name, 1, None)
        if isinstance(replies, NoScriptError):
            return await self.settle(0, limit, grace, snapshots)
        for reply in (woken, replies):
            if isinstance(reply, Exception):
                raise reply
        return self._results(replies)

    async def pass_on(self) -> None:
        """Wake the driver that has waited longest: it may be able to settle what is left."""
        await self._redis.zadd(self._marker, {"0": 0})

    async def set_aside(self, entry: str) -> None:
        """Park the group of an entry that cannot be settled; the resync tries it again."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.zadd(self._parked, {names.group_of_wakeup(entry): now_ms()})
        pipeline.lrem(self._list, 1, entry)
        await pipeline.execute()

    def _slots(self, skip: int, limit: int, grace: int, snapshots: bool) -> dict[str, Any]:
        keys = {
            "wakeups": self._list,
            "parked": self._parked,
            "marker": self._marker,
            "events": self._events,
        }
        about = {"prefix": self._prefix, "grace": grace, "snapshot": int(snapshots)}
        return {**keys, **about, "skip": skip, "limit": limit}

    def _results(self, replies: list[Any]) -> list[tuple[str, SettleResult]]:
        return [
            (entry, read_settled(names.group_of_wakeup(entry), reply, self._observer))
            for entry, reply in zip(replies[::2], replies[1::2], strict=True)
        ]
