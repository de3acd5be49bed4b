"""Drivers and Redis are killed at every command; the groups end as without kills."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobgroup import Driver, GroupState, JobGroups, Store, connect
from jobgroup.model import names
from testbed.servers.redis import RedisServer
from testbed.servers.stock import StockClient, fails_for_good, returns
from testbed.support.sagas import peek, reached
from testbed.support.waiting import eventually

PREFIX = "bull"
DOOMED = Path(__file__).with_name("doomed_driver.py")
# A job that a crash of Redis interrupted runs again after its lock has expired.
SHORT_LOCK: dict[str, Any] = {"lockDuration": 2000, "stalledInterval": 500}
MANY = 260  # more members than one call may undo


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Start a Redis that keeps its data after a crash."""
    with RedisServer(tmp_path, persistent=True) as server:
        yield server


@pytest.fixture
async def groups(server: RedisServer) -> AsyncIterator[JobGroups]:
    """Open the API, with stock workers for jobs and undos."""
    behaviour = {"pay": returns({"tx": 1}), "ship": fails_for_good("no stock")}
    async with (
        await StockClient.start("bullmq6", server.url, PREFIX) as worker,
        await StockClient.start("bullmq6", server.url, f"{PREFIX}:payments") as undoer,
        JobGroups.connect(server.url, PREFIX) as groups,
    ):
        await worker.work("payments", behaviour, concurrency=20, **SHORT_LOCK)
        await undoer.work("compensation", concurrency=20, **SHORT_LOCK)
        yield groups


@contextlib.asynccontextmanager
async def driving(url: str) -> AsyncIterator[Driver]:
    """Run a driver beside the test."""
    async with connect(url) as redis:
        driver = Driver(Store(redis, PREFIX))
        task = asyncio.create_task(driver.run())
        try:
            yield driver
        finally:
            task.cancel()
            await asyncio.wait([task])


async def failed_group(groups: JobGroups, members: int) -> str:
    """Create a group whose last member failed and whose others completed, without a driver."""
    jobs: list[dict[str, Any]] = [{"name": "pay", "queueName": "payments"}] * (members - 1)
    jobs.append({"name": "ship", "queueName": "payments", "opts": {"priority": 1}})
    told = {"queueName": "alerts", "name": "told"}
    on_end = [told, {**told, "when": "Failed"}, {**told, "when": "Completed"}]
    node = await groups.add_group("order", jobs, {"pay": {"name": "refund"}}, on_end=on_end)

    async def ran() -> bool:
        state = await read(groups, node.group_id)
        return (state.completed_count, state.failed_count) == (members - 1, 1)

    await eventually(ran)
    return node.group_id


async def doomed(url: str, at: int, moment: str) -> bool:
    """Run a driver that is killed at its n-th command; return whether it reached the command."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(DOOMED), url, PREFIX, str(at), moment]
    process = await asyncio.create_subprocess_exec(*command, env=env)
    code = await process.wait()
    assert code in (0, -9)
    return code == -9


async def read(groups: JobGroups, group_id: str) -> GroupState:
    state = await peek(groups.store, group_id)
    assert state is not None
    return state


async def assert_undone_once(groups: JobGroups, group_id: str, members: int) -> None:
    """Check that the group ended as it does without a crash."""
    await Driver(groups.store).drain()  # one entry without work may still be on the wake-up list
    state = await read(groups, group_id)
    assert state.state == "FAILED"
    assert state.completed_count == state.undo_count == state.undone_count == members - 1
    assert (state.failed_count, state.cancelled_count, state.undo_failed_count) == (1, 0, 0)
    entries: Any = await groups.store.redis.xrange(f"{PREFIX}:payments:events")
    told = [fields["event"] for _, fields in entries if fields.get("groupId") == group_id]
    assert told == ["group:compensating", "group:failed"]
    added = await groups.store.redis.lrange(f"{PREFIX}:alerts:wait", 0, -1)
    own = [each for each in map(str, added) if each.startswith(group_id)]
    assert own == [f"{group_id}-end-1-1", f"{group_id}-end-0-1"]
    assert await groups.store.redis.llen(names.wakeups_key(PREFIX)) == 0


@pytest.mark.parametrize(
    ("members", "moment"), [(3, "before"), (3, "after"), (MANY, "before"), (MANY, "after")]
)
async def test_a_driver_killed_at_any_command_loses_nothing(
    server: RedisServer, groups: JobGroups, members: int, moment: str
) -> None:
    at, died = 0, True
    while died:
        at += 1
        group_id = await failed_group(groups, members)
        died = await doomed(server.url, at, moment)
        async with driving(server.url):
            await reached(groups.store, group_id, ended=True)
        await assert_undone_once(groups, group_id, members)
        await groups.remove_group(group_id)
        await groups.store.redis.delete(f"{PREFIX}:payments:events")
    assert at > 4, "the driver needed no commands, so nothing was killed"


async def test_redis_crashes_under_a_running_driver(server: RedisServer, groups: JobGroups) -> None:
    group_id = await failed_group(groups, MANY)
    async with driving(server.url):
        await eventually(lambda: compensating(groups, group_id))
        server.kill()
        server.start_again()
        await reached(groups.store, group_id, ended=True)
    await assert_undone_once(groups, group_id, MANY)


async def test_redis_and_the_driver_crash_together(server: RedisServer, groups: JobGroups) -> None:
    group_id = await failed_group(groups, MANY)
    assert await doomed(server.url, 5, "after")
    server.kill()
    server.start_again()
    async with driving(server.url):
        await reached(groups.store, group_id, ended=True)
    await assert_undone_once(groups, group_id, MANY)


async def test_a_driver_continues_after_an_outage_of_redis(
    server: RedisServer, groups: JobGroups
) -> None:
    async with driving(server.url) as driver:
        server.kill()

        async def complained() -> bool:
            return driver.counters.errors >= 3

        await eventually(complained)
        server.start_again()
        node = await groups.add_group(
            "order", [{"name": n, "queueName": "payments"} for n in ("pay", "ship")]
        )
        assert (await reached(groups.store, node.group_id, ended=True)).state == "FAILED"


async def test_two_drivers_do_not_interfere(server: RedisServer, groups: JobGroups) -> None:
    group_id = await failed_group(groups, MANY)
    async with driving(server.url), driving(server.url):
        await reached(groups.store, group_id, ended=True)
    await assert_undone_once(groups, group_id, MANY)


async def compensating(groups: JobGroups, group_id: str) -> bool:
    return (await read(groups, group_id)).state != "ACTIVE"
