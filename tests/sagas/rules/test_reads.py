"""One answer about a group never contradicts itself, with or without a driver."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from jobgroup import Driver, GroupState, JobGroups, Store
from testbed.servers.redis import RedisServer
from testbed.servers.stock import StockClient, fails_for_good, hangs
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import Sagas, job, peek, reached, undo
from testbed.support.waiting import eventually

PREFIX = "bull"


@pytest.fixture
async def lone_client(worker_url: str, prefix: str, flavour: str) -> AsyncIterator[StockClient]:
    """Start a stock client without a driver."""
    client = await StockClient.start(flavour, worker_url, prefix)
    yield client
    await client.end()


@pytest.fixture
async def groups(redis: Redis, operator_redis: Redis, prefix: str) -> AsyncIterator[JobGroups]:
    """Return the groups of a test without a driver; all keys are deleted afterwards."""
    yield JobGroups(Store(operator_redis, prefix))
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


def contradicts_itself(group: GroupState) -> bool:
    """Return whether state and counts of a group exclude each other; each `charge` has an undo."""
    done = group.completed_count == group.total_jobs
    open_jobs = group.total_jobs - (
        group.completed_count + group.failed_count + group.cancelled_count
    )
    undone = group.undone_count == group.completed_count
    return {
        "ACTIVE": done or group.failed_count > 0,
        "COMPLETED": not done or group.finished_at is None,
        "COMPENSATING": not group.failed_count or (not open_jobs and undone),
        "FAILED": not group.failed_count
        or open_jobs > 0
        or not undone
        or group.undone_count != group.undo_count
        or group.finished_at is None,
    }[group.state]


async def test_no_answer_contradicts_itself_while_a_driver_runs(
    sagas: Sagas, start_client: ClientStarter
) -> None:
    client = await start_client("bullmq6")
    await client.work("payments", {"reserve": fails_for_good()}, concurrency=10)
    contradictions, seen = [], set[str]()
    for n in range(40):
        members = [job("charge"), job("charge"), job("reserve" if n % 2 else "charge")]
        order = await sagas.add(*members, undos={"charge": undo("refund")})
        while True:
            state = await sagas.groups.get_group_state(order.group_id)
            assert state is not None
            if contradicts_itself(state):
                contradictions.append(state)
            if state.state == "COMPENSATING" and state.state not in seen:
                await client.work("payments:compensation", concurrency=10)
            seen.add(state.state)
            if state.ended:
                break
    assert contradictions == []
    assert seen >= {"COMPENSATING", "COMPLETED", "FAILED"}


async def refuse_writes(redis: Redis, refusal: str) -> None:
    """Make a server refuse writes by a setting, or by a failover that left it a replica."""
    if refusal == "replica":
        await redis.execute_command("REPLICAOF", "127.0.0.1", 1)  # type: ignore[no-untyped-call]
    else:
        await redis.config_set(refusal, 1)


@pytest.mark.server
@pytest.mark.parametrize("refusal", ["maxmemory", "min-replicas-to-write", "replica"])
async def test_a_read_derives_the_state_if_redis_takes_no_writes(
    tmp_path: Path, refusal: str
) -> None:
    charge, reserve, undos = job("charge"), job("reserve", "inventory"), {"charge": undo("refund")}
    with RedisServer(tmp_path) as server:
        async with (
            JobGroups.connect(server.url, PREFIX) as groups,
            await StockClient.start("bullmq6", server.url, PREFIX) as client,
        ):
            await groups.add_group("order", [charge], undos, "COMPLETED")
            await groups.add_group("order", [charge, reserve], undos, "COMPENSATING")
            await groups.add_group("order", [reserve], None, "FAILED")
            await client.work("payments")
            await client.heard("completed", id="COMPLETED-0")
            await client.heard("completed", id="COMPENSATING-0")
            await client.work("inventory", {"reserve": fails_for_good()})
            await client.heard("failed", id="COMPENSATING-1")
            await client.heard("failed", id="FAILED-0")
            await refuse_writes(groups.store.redis, refusal)
            for state in ("COMPLETED", "COMPENSATING", "FAILED"):
                reading = await groups.store.read_with(state)
                for read in (await groups.get_group_state(state), reading.group):
                    assert read is not None
                    # The time of the end is stored when the group is settled.
                    assert (read.state, read.finished_at) == (state, None)
                stored = await peek(groups.store, state)
                assert stored is not None
                assert stored.state == "ACTIVE"


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


@pytest.mark.parametrize("flavour", ["bullmq6"])
async def test_a_resync_under_compensation_counts_no_repair(
    groups: JobGroups, lone_client: StockClient
) -> None:
    order = await groups.add_group(
        "order", [job("charge"), job("pack"), job("reserve")], {"charge": undo("refund")}
    )
    behaviour = {"charge": hangs(), "pack": hangs(), "reserve": fails_for_good()}
    await lone_client.work("payments", behaviour, concurrency=3)
    await lone_client.heard("failed", name="reserve")
    await Driver(groups.store).drain()
    assert (await reached(groups.store, order.group_id, state="COMPENSATING")).undo_count == 0
    await lone_client.release("charge")
    await lone_client.heard("completed", name="charge")
    # No job wakes a driver until the last one ends, and this driver does not know the group.
    driver = Driver(groups.store)
    assert await driver.resync() == 0
    assert driver.counters.repairs == 0
    assert (await reached(groups.store, order.group_id, state="COMPENSATING")).undo_count == 1


@pytest.mark.parametrize("flavour", ["bullmq6"])
async def test_a_driver_settles_wake_ups_while_it_reviews_groups(
    groups: JobGroups, lone_client: StockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {"review", "short", "unparked", "reclaim"}
    blocked: set[str] = set()

    def endless(call: str) -> Callable[..., Awaitable[None]]:
        async def wait(*_: object) -> None:
            blocked.add(call)
            await asyncio.Event().wait()

        return wait

    for call in calls:
        monkeypatch.setattr(groups.store.reviews, call, endless(call))
    order = await groups.add_group("order", [job("charge")])
    task = asyncio.create_task(Driver(groups.store).run())

    async def all_blocked() -> bool:
        return blocked == calls

    await eventually(all_blocked)
    await lone_client.work("payments")
    await reached(groups.store, order.group_id, state="COMPLETED")
    task.cancel()
    await asyncio.wait([task])


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
    assert sagas.errors == []


async def blocked_on(redis: Redis, command: str, clients: int) -> None:
    """Wait until this number of clients is blocked on a command."""

    async def are_blocked() -> bool:
        listed = await redis.client_list()
        return clients == sum(each["cmd"] == command and "b" in each["flags"] for each in listed)

    await eventually(are_blocked)
