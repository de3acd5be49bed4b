"""What tests of sagas share: definitions in one line, and a stage on which groups run to their end.

The stage has a driver at work from the start. What a test leaves on it is cleared away at its end,
which fails the test if a group is still compensating or if the driver met an error. What a removed
group leaves behind stays, for the guard of the test's prefix to find.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from redis.asyncio import Redis

from jobgroup import Driver, GroupNode, GroupState, JobGroups, keys
from testbed.stock import PATIENCE_SECONDS, StockClient
from testbed.waiting import eventually

GROUP_EVENTS = ("group:completed", "group:compensating", "group:failed")
# What outlives a removed group by design: its tombstone, what its owner was told and how far that
# was read, and what BullMQ itself keeps for a queue.
RESIDUE = re.compile(
    r"_jobgroups:(events|marker|(tomb|changed|heard):[^:]+)"
    r"|[^:]+(:compensation)?:(events|id|marker|meta|pc|stalled-check)"
)


def job(name: str, queue: str = "payments", **opts: Any) -> dict[str, Any]:
    """Define a member."""
    return {"name": name, "queueName": queue, "data": {"orderId": "123"}, "opts": opts}


def undo(name: str, when: str = "Completed", **opts: Any) -> dict[str, Any]:
    """Define the undo of a member."""
    return {"name": name, "data": {"orderId": "123"}, "opts": opts, "when": when}


class Sagas:
    """The groups of one test, and the driver that moves them on."""

    def __init__(self, groups: JobGroups) -> None:
        self.groups = groups
        self.redis: Redis = groups.store.redis
        self.prefix = groups.store.prefix
        self.errors: list[tuple[str, Exception]] = []
        self._drivers: list[asyncio.Task[None]] = []
        self.driver = self.drive()

    def drive(self, **settings: Any) -> Driver:
        """Start a driver that looks often where it must look, and resyncs only when told to."""
        driver = Driver(
            self.groups.store,
            on_error=lambda group_id, error: self.errors.append((group_id, error)),
            **{"resync_seconds": 3600, "recheck_seconds": 0.05, **settings},
        )
        self._drivers.append(asyncio.create_task(driver.run()))
        return driver

    async def add(
        self, *jobs: Mapping[str, Any], undos: Mapping[str, Any] | None = None
    ) -> GroupNode:
        """Create an order."""
        return await self.groups.add_group("order", jobs, undos)

    async def read(self, group_id: str) -> GroupState:
        """Return a group that must be there."""
        state = await self.groups.get_group_state(group_id)
        assert state is not None
        return state

    async def reaches(self, group_id: str, **wanted: Any) -> GroupState:
        """Wait until a group has these values, and return it."""
        state = await self.read(group_id)

        async def reached() -> bool:
            nonlocal state
            state = await self.read(group_id)
            return all(getattr(state, name) == value for name, value in wanted.items())

        try:
            await eventually(reached)
        except TimeoutError:
            raise AssertionError(f"never {wanted}, but {state}") from None
        return state

    async def ends(self, group_id: str) -> GroupState:
        """Wait until a group has ended, and return it."""
        return await self.groups.wait_for_group(group_id, PATIENCE_SECONDS)

    async def statuses(self, group_id: str) -> list[str]:
        """Return the status of each member, in the order of the definition."""
        return [job.status for job in await self.groups.get_group_jobs(group_id)]

    async def told(self, listener: StockClient, queue: str) -> list[tuple[str, dict[str, Any]]]:
        """Return each group event a listener heard, once it heard all that the stream holds.

        Every group is settled once more before: what would be told twice is told by now.
        """
        await self.groups.store.settle([(group_id, "") for group_id in await self._group_ids()])
        stream = cast(list[Any], await self.redis.xrange(keys.events(self.prefix, queue)))
        last = [entry_id for entry_id, fields in stream if fields["event"] in GROUP_EVENTS][-1]
        await listener.heard("event", queue=queue, id=last)
        return [
            (report["type"], report["fields"])
            for report in listener.reports
            if report["event"] == "event" and report["queue"] == queue
        ]

    async def keys(self, pattern: str = "*") -> list[str]:
        """Return the keys of this test, without its prefix."""
        found = self.redis.scan_iter(f"{self.prefix}:{pattern}", count=1000)
        return sorted([key.removeprefix(f"{self.prefix}:") async for key in found])

    async def clear(self) -> None:
        """Stop driving, remove every group, and sweep exactly what a removed group may leave."""
        for driver in self._drivers:
            driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await driver
        try:
            for group_id in await self._group_ids():
                if (await self.read(group_id)).state == "ACTIVE":
                    await self.groups.cancel_group(group_id)
                await self.groups.remove_group(group_id)
        finally:
            for key in await self.keys():
                if RESIDUE.fullmatch(key):
                    await self.redis.delete(f"{self.prefix}:{key}")
        assert not self.errors, "the driver met errors"

    async def _group_ids(self) -> set[str]:
        books = keys.books(self.prefix)
        tokens = [
            *await self.redis.zrange(f"{books}:saga:ended", 0, -1),
            *await self.redis.zrange(f"{books}:waiting-children", 0, -1),
            *await self.redis.lrange(f"{books}:wait", 0, -1),
        ]
        return {keys.group_of(token) for token in tokens}


@contextlib.asynccontextmanager
async def stage(redis_url: str, prefix: str) -> AsyncIterator[Sagas]:
    """Set a stage under a prefix, and clear it."""
    async with JobGroups.connect(redis_url, prefix) as groups:
        sagas = Sagas(groups)
        try:
            yield sagas
        finally:
            await sagas.clear()
