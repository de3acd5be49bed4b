"""One answer about a group never contradicts itself, with or without a driver."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from jobgroup import Driver, JobGroups, Store
from testbed.servers.redis import RedisServer
from testbed.servers.stock import StockClient, fails_for_good
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import Sagas, job, undo

PREFIX = "bull"


@pytest.fixture
async def lone_client(redis_url: str, prefix: str, flavour: str) -> AsyncIterator[StockClient]:
    """Start a stock client without a driver."""
    client = await StockClient.start(flavour, redis_url, prefix)
    yield client
    await client.end()


@pytest.fixture
async def groups(redis: Redis, prefix: str) -> AsyncIterator[JobGroups]:
    """Return the groups of a test without a driver; all keys are deleted afterwards."""
    yield JobGroups(Store(redis, prefix))
    await redis.delete(*[key async for key in redis.scan_iter(f"{prefix}:*")])


async def test_a_group_is_read_as_completed_although_no_driver_runs(
    groups: JobGroups, lone_client: StockClient
) -> None:
    order = await groups.add_group("order", [job("charge"), job("reserve")])
    await lone_client.work("payments")
    for member in order.jobs:
        await lone_client.heard("completed", id=member.job_id)
    state = await groups.get_group_state(order.group_id)
    assert state is not None
    assert (state.state, state.completed_count) == ("COMPLETED", 2)
    assert state.finished_at is not None


async def test_no_answer_contradicts_itself_while_a_driver_runs(
    sagas: Sagas, start_client: ClientStarter
) -> None:
    client = await start_client("bullmq6")
    await client.work("payments", {"reserve": fails_for_good()}, concurrency=10)
    await client.work("payments:compensation", concurrency=10)
    contradictions = []
    for n in range(40):
        members = [job("charge"), job("charge"), job("reserve" if n % 2 else "charge")]
        order = await sagas.add(*members, undos={"charge": undo("refund")})
        while True:
            state = await sagas.read(order.group_id)
            done = state.completed_count == state.total_jobs
            if state.state == "ACTIVE" and (done or state.failed_count):
                contradictions.append(state)
            if state.state == "COMPLETED" and not done:
                contradictions.append(state)
            if state.ended:
                break
    assert contradictions == []


async def test_a_read_derives_the_state_if_redis_takes_no_writes(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        async with JobGroups.connect(server.url, PREFIX) as groups:
            client = await StockClient.start("bullmq6", server.url, PREFIX)
            order = await groups.add_group("order", [job("charge")], {"charge": undo("refund")})
            failed = await groups.add_group(
                "order",
                [job("charge", "shipping"), job("reserve", "inventory")],
                {"charge": undo("refund")},
            )
            for queue in ("payments", "shipping"):
                await client.work(queue)
            await client.work("inventory", {"reserve": fails_for_good()})
            await client.heard("completed", id=failed.jobs[0].job_id)
            await client.heard("completed", id=order.jobs[0].job_id)
            await client.heard("failed", id=failed.jobs[1].job_id)
            redis = groups.store.redis
            for setting, usual in (("maxmemory", 0), ("min-replicas-to-write", 0)):
                await redis.config_set(setting, 1)
                for node, expected in ((order, "COMPLETED"), (failed, "COMPENSATING")):
                    state = await groups.get_group_state(node.group_id)
                    assert state is not None
                    assert state.state == expected
                    key = f"{PREFIX}:{node.jobs[0].queue_name}:groups:{node.group_id}"
                    assert await redis.hget(key, "state") == "ACTIVE"
                await redis.config_set(setting, usual)
            await client.end()


async def test_a_run_under_load_repairs_nothing(sagas: Sagas, start_client: ClientStarter) -> None:
    client = await start_client("bullmq6")
    driver = sagas.drive(resync_seconds=0.01)
    await client.work("payments", {"reserve": fails_for_good()}, concurrency=10)
    await client.work("payments:compensation", concurrency=10)
    orders = [
        await sagas.add(
            job("charge"),
            job("charge"),
            job("charge", attempts=3),
            job("reserve"),
            undos={"charge": undo("refund", when="Started")},
        )
        for _ in range(100)
    ]
    for order in orders:
        assert (await sagas.ends(order.group_id)).state == "FAILED"
    assert driver.counters.resyncs > 0
    assert driver.counters.repairs == sagas.driver.counters.repairs == 0


async def test_a_driver_settles_wake_ups_while_it_reviews_groups(
    sagas: Sagas, start_client: ClientStarter, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await start_client("bullmq6")
    for _ in range(150):
        await sagas.add(job("idle", "idle"))
    reviews = sagas.groups.store.reviews
    review, reviewing = reviews.review, asyncio.Event()

    async def endless(*args: object) -> object:
        page = await review(*args)  # type: ignore[arg-type]
        reviewing.set()
        await asyncio.Event().wait()
        return page

    monkeypatch.setattr(reviews, "review", endless)
    driver = Driver(sagas.groups.store)
    task = asyncio.create_task(driver.run())
    await reviewing.wait()
    order = await sagas.add(job("charge"))
    await client.work("payments")
    await client.heard("completed", name="charge")
    while not driver.counters.wakeups and not sagas.driver.counters.wakeups:
        await asyncio.sleep(0.01)
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_an_idle_driver_settles_before_a_worker_starts_another_member(
    sagas: Sagas, lone_client: StockClient
) -> None:
    """A worker of Node takes the second job as it fails the first; the third must not start."""
    await lone_client.work("payments", {"charge": fails_for_good()}, concurrency=1)
    for _ in range(10):
        await blocked_on(sagas.redis, "bzpopmin", 2)
        order = await sagas.add(job("charge"), job("reserve"), job("ship"))
        assert (await sagas.ends(order.group_id)).cancelled_count >= 1


async def test_a_driver_settles_after_redis_has_forgotten_its_scripts(
    sagas: Sagas, lone_client: StockClient
) -> None:
    await blocked_on(sagas.redis, "bzpopmin", 1)
    order = await sagas.add(job("charge"))
    await sagas.redis.script_flush()
    await lone_client.work("payments")
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"


async def blocked_on(redis: Redis, command: str, clients: int) -> None:
    """Wait until this number of clients is blocked on a command."""
    while True:
        listed = await redis.client_list()
        if sum(each["cmd"] == command and "b" in each["flags"] for each in listed) == clients:
            return
        await asyncio.sleep(0.01)
