"""Drivers and Redis are killed at every turn; the end is the same as without."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from jobgroup import Driver, GroupState, JobGroups, Store, connect
from testbed.redis_server import RedisServer
from testbed.stock import StockClient, fails_for_good, returns

PREFIX = "bull"
DOOMED = Path(__file__).with_name("doomed_driver.py")
MEMBERS = 260  # more than one call may undo


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Start a Redis that survives its own crash."""
    with RedisServer(tmp_path, persistent=True) as server:
        yield server


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
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def failed_group(groups: JobGroups, url: str, members: int) -> str:
    """Make a group whose members all completed but the last, which failed, with nobody driving."""
    jobs = [{"name": "pay", "queueName": "payments"}] * (members - 1)
    jobs.append({"name": "ship", "queueName": "payments", "opts": {"priority": 1}})
    node = await groups.add_group("order", jobs, {"pay": {"name": "refund"}})
    async with await StockClient.start("bullmq6", url, PREFIX) as worker:
        behaviour = {"pay": returns({"tx": 1}), "ship": fails_for_good("no stock")}
        await worker.work("payments", behaviour, concurrency=20)
        await worker.heard("failed", name="ship")
        while worker.count("completed") < members - 1:
            await worker.heard("completed", after=len(worker.reports))
        await worker.close()
    return node.group_id


async def doomed(url: str, at: int, moment: str) -> bool:
    """Run a driver that is killed at its n-th command; say whether it lived to reach it."""
    command = [sys.executable, str(DOOMED), url, PREFIX, str(at), moment]
    process = await asyncio.create_subprocess_exec(*command)
    return await process.wait() == -9


async def undo_all(url: str, groups: JobGroups, group_id: str) -> GroupState:
    """Let a driver and an undo worker finish what is left."""
    async with await StockClient.start("bullmq6", url, f"{PREFIX}:payments") as worker:
        await worker.work("compensation", concurrency=20)
        async with driving(url):
            ended = await groups.wait_for_group(group_id, 60)
        assert worker.count("completed") == ended.undo_count
        return ended


async def assert_ended_once(groups: JobGroups, group_id: str, members: int) -> None:
    await Driver(groups.store).drain()  # a last wake-up may still stand there, with nothing to do
    state = await groups.get_group_state(group_id)
    assert state is not None
    assert (state.state, state.completed_count, state.failed_count, state.cancelled_count) == (
        "FAILED",
        members - 1,
        1,
        0,
    )
    assert (state.undo_count, state.undone_count, state.undo_failed_count) == (
        members - 1,
        members - 1,
        0,
    )
    stream = await groups.store.redis.xrange(f"{PREFIX}:payments:events")
    told = [fields["event"] for _, fields in stream if fields["event"].startswith("group:")]
    assert told == ["group:compensating", "group:failed"]
    assert await groups.store.wakeups(10) == []


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("members", [3, MEMBERS])
async def test_a_driver_killed_at_any_command_loses_nothing(
    server: RedisServer, moment: str, members: int
) -> None:
    async with JobGroups.connect(server.url, PREFIX) as groups:
        at = 1
        while True:
            group_id = await failed_group(groups, server.url, members)
            died = await doomed(server.url, at, moment)
            await undo_all(server.url, groups, group_id)
            await assert_ended_once(groups, group_id, members)
            await groups.remove_group(group_id)
            await groups.store.redis.flushall()
            if not died:
                break
            at += 1
    assert at > 4, "the driver needed no commands, so nothing was killed"


async def test_redis_crashes_while_the_undos_run(server: RedisServer) -> None:
    async with JobGroups.connect(server.url, PREFIX) as groups:
        group_id = await failed_group(groups, server.url, 3)
        async with driving(server.url):
            await compensating(groups, group_id)
            server.kill()
            server.start_again()
            await undo_all(server.url, groups, group_id)
        await assert_ended_once(groups, group_id, 3)


async def test_redis_and_the_driver_crash_together(server: RedisServer) -> None:
    async with JobGroups.connect(server.url, PREFIX) as groups:
        group_id = await failed_group(groups, server.url, MEMBERS)
        assert await doomed(server.url, 6, "after")
        server.kill()
        server.start_again()
        await undo_all(server.url, groups, group_id)
        await assert_ended_once(groups, group_id, MEMBERS)


async def test_a_driver_goes_on_when_redis_is_away_for_a_while(server: RedisServer) -> None:
    async with JobGroups.connect(server.url, PREFIX) as groups, driving(server.url) as driver:
        server.kill()
        while driver.counters.errors < 3:
            await asyncio.sleep(0.01)
        server.start_again()
        group_id = await failed_group(groups, server.url, 3)
        await undo_all(server.url, groups, group_id)
        await assert_ended_once(groups, group_id, 3)


async def test_two_drivers_are_as_good_as_one(server: RedisServer) -> None:
    async with JobGroups.connect(server.url, PREFIX) as groups:
        group_id = await failed_group(groups, server.url, MEMBERS)
        async with driving(server.url), driving(server.url):
            await undo_all(server.url, groups, group_id)
        await assert_ended_once(groups, group_id, MEMBERS)


async def compensating(groups: JobGroups, group_id: str) -> None:
    while True:
        state = await groups.get_group_state(group_id)
        if state and state.state == "COMPENSATING":
            return
        await asyncio.sleep(0.01)
