"""Shared parts of the saga tests: short definitions, and a stage with groups and a driver.

The stage starts a driver and removes all groups at the end. The test fails if a group is still
compensating then, or if the driver reported an error. Unexpected keys are not deleted, so that the
check of the test's prefix finds them.

`get_group_state` and `wait_for_group` settle a group that is due, so a test that waits with them
needs no driver. `peek`, `reached` and the methods of the stage settle nothing.
"""

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from jobgroup import Driver, GroupNode, GroupState, JobGroups, Store
from jobgroup.model import names
from jobgroup.store.connection import connect, is_transient
from jobgroup.store.replies import read_group, refusal
from jobgroup.store.scripts import FOLDER, load
from testbed.servers.stock import StockClient
from testbed.support.waiting import eventually

GROUP_EVENTS = ("group:completed", "group:compensating", "group:failed")
_ANY = "[^:]+"
# The keys that outlive a removed group by design, without their prefix: its tombstone, the changes
# and checkpoints of its owner, and what BullMQ itself keeps for a queue.
RESIDUE = re.compile(
    "|".join(
        [
            names.tombstone_key("", _ANY)[1:],
            names.owner_changes_key("", _ANY)[1:],
            names.checkpoints_key("", _ANY)[1:],
            names.marker_key("")[1:],
            names.events_key("", names.LEDGER_QUEUE)[1:],
            names.reviewer_key("")[1:],
            f"{_ANY}({names.UNDO_QUEUE_SUFFIX})?:(events|id|marker|meta|pc|stalled-check)",
        ]
    )
)


def job(name: str, queue: str = "payments", **opts: Any) -> dict[str, Any]:
    """Define a member."""
    return {"name": name, "queueName": queue, "data": {"orderId": "123"}, "opts": opts}


def undo(name: str, when: str = "Completed", **opts: Any) -> dict[str, Any]:
    """Define the undo of a member."""
    return {"name": name, "data": {"orderId": "123"}, "opts": opts, "when": when}


_READ_GROUP = load("read_group")


async def peek(store: Store, group_id: str) -> GroupState | None:
    """Read a group without settling it: the state is that of the last settle."""
    slots = {"parent": names.parent_key(store.prefix, group_id), "prefix": store.prefix}
    try:
        reply = await _READ_GROUP(store.redis, **slots, gid=group_id)
    except ResponseError as error:
        raise refusal(error) from None
    return read_group(group_id, reply).group if reply else None


async def reached(store: Store, group_id: str, **wanted: Any) -> GroupState:
    """Wait until a group that must exist has these values, and return it; settle nothing.

    Continue to wait while Redis is unavailable.
    """
    found: GroupState | None = None

    async def has_them() -> bool:
        nonlocal found
        try:
            found = await peek(store, group_id)
        except RedisError as error:
            if not is_transient(error):
                raise
            return False
        assert found is not None
        return all(getattr(found, name) == value for name, value in wanted.items())

    try:
        await eventually(has_them)
    except TimeoutError:
        raise AssertionError(f"never {wanted}, but {found}") from None
    assert found is not None
    return found


class Sagas:
    """The groups of one test, and a driver. `redis` may do everything."""

    def __init__(self, groups: JobGroups, redis: Redis) -> None:
        self.groups = groups
        self.redis = redis
        self.prefix = groups.store.prefix
        self.errors: list[tuple[str, Exception]] = []
        self._drivers: list[asyncio.Task[None]] = []
        self.driver = self.drive()

    def drive(self, **settings: Any) -> Driver:
        """Start a driver with short intervals that does not resync by itself."""
        driver = Driver(
            self.groups.store,
            on_error=lambda group_id, error: self.errors.append((group_id, error)),
            **{"resync_seconds": 3600, "recheck_seconds": 0.05, "name": "tests", **settings},
        )
        self._drivers.append(asyncio.create_task(driver.run()))
        return driver

    async def add(
        self, *jobs: Mapping[str, Any], undos: Mapping[str, Any] | None = None
    ) -> GroupNode:
        """Create an order."""
        return await self.groups.add_group("order", jobs, undos)

    async def read(self, group_id: str) -> GroupState:
        """Return a group that must exist, without settling it."""
        state = await peek(self.groups.store, group_id)
        assert state is not None
        return state

    async def reaches(self, group_id: str, **wanted: Any) -> GroupState:
        """Wait until a group has these values, and return it."""
        return await reached(self.groups.store, group_id, **wanted)

    async def ends(self, group_id: str) -> GroupState:
        """Wait until a group has ended, and return it."""
        return await self.reaches(group_id, ended=True)

    async def statuses(self, group_id: str) -> list[str]:
        """Return the status of each member, in the order of the definition."""
        return [job.status for job in await self.groups.get_group_jobs(group_id)]

    async def told(self, listener: StockClient, queue: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the group events that a listener received, after it received all of the stream.

        Every group is settled once more before, so that a duplicate event would be found.
        """
        await self.groups.store.settle(list(await self._group_ids()))
        stream = cast(list[Any], await self.redis.xrange(names.events_key(self.prefix, queue)))
        last = [entry_id for entry_id, fields in stream if fields["event"] in GROUP_EVENTS][-1]
        await listener.heard("event", queue=queue, id=last)
        return [
            (report["type"], report["fields"])
            for report in listener.reports
            if report["event"] == "event" and report["queue"] == queue
        ]

    async def keys(self, pattern: str = "*") -> list[str]:
        """Return the keys of this test, without its prefix and without the claim of the driver."""
        found = self.redis.scan_iter(f"{self.prefix}:{pattern}", count=1000)
        keys = {key.removeprefix(f"{self.prefix}:") async for key in found}
        return sorted(keys - {names.reviewer_key("")[1:]})

    async def stop(self) -> None:
        """Stop the drivers."""
        for driver in self._drivers:
            driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await driver

    async def clear(self) -> None:
        """Stop the drivers, remove all groups, and delete what a removed group may leave."""
        await self.stop()
        try:
            for group_id in await self._group_ids():
                state = await self.groups.get_group_state(group_id)
                if state is not None and state.state == "ACTIVE":
                    await self.groups.cancel_group(group_id)
                await self.groups.remove_group(group_id)
        finally:
            await delete_residue(self.redis, self.prefix)
        # A machine that stands still for seconds lets calls time out; the driver repeats them.
        errors = [each for each in self.errors if not isinstance(each[1], RedisTimeoutError)]
        assert errors == [], "the driver met errors"

    async def _group_ids(self) -> set[str]:
        return await all_groups(self.redis, self.prefix)


async def all_groups(redis: Redis, prefix: str) -> set[str]:
    """Return the ids of all groups, running or ended."""
    tokens = [
        *await redis.zrange(names.parked_key(prefix), 0, -1),
        *await redis.lrange(names.wakeups_key(prefix), 0, -1),
    ]
    return {names.group_of_wakeup(token) for token in tokens}


async def delete_residue(redis: Redis, prefix: str) -> None:
    """Delete the keys that outlive a removed group by design, and no other."""
    async for key in redis.scan_iter(f"{prefix}:*", count=1000):
        if RESIDUE.fullmatch(key.removeprefix(f"{prefix}:")):
            await redis.delete(key)


@contextlib.asynccontextmanager
async def stage(redis_url: str, prefix: str, admin_url: str = "") -> AsyncIterator[Sagas]:
    """Run a driver for the groups below a prefix; remove them at the end."""
    async with (
        JobGroups.connect(redis_url, prefix) as groups,
        connect(admin_url or redis_url, prefix) as redis,
    ):
        sagas = Sagas(groups, redis)
        try:
            yield sagas
        finally:
            await sagas.clear()


def knowing(folder: Path, highest: int) -> Path:
    """Copy the scripts, and let them know no format above this one."""
    shutil.copytree(FOLDER, folder)
    formats = folder / "includes/formats.lua"
    text, replaced = re.subn(r"highest = \d+", f"highest = {highest}", formats.read_text())
    assert replaced == 1
    formats.write_text(text)
    return folder
