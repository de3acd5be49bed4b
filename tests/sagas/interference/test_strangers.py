"""Foreign clients that use the pseudo queue as a queue: every group still ends."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from jobgroup import Driver, JobGroups, Store
from jobgroup.model import names
from testbed.servers.stock import StockClient
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import Sagas, job
from testbed.support.waiting import eventually


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[str], bool]:
    return lambda text: any(text in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("removes", [False, True], ids=["keeps", "removes"])
async def test_a_worker_that_takes_wake_ups_loses_no_group(
    sagas: Sagas, client: StockClient, removes: bool
) -> None:
    kept = {"count": 0 if removes else 1000}
    await client.work(names.LEDGER_QUEUE, name="stranger", removeOnComplete=kept)
    await client.work("payments")
    orders = [await sagas.add(job("charge")) for _ in range(20)]
    for order in orders:
        await client.heard("completed", id=order.jobs[0].job_id)
    await client.end()
    for _ in range(2):
        await sagas.driver.resync()
        await sagas.driver.drain()
    assert [(await sagas.read(order.group_id)).state for order in orders] == ["COMPLETED"] * 20
    # A group that nobody put back on the list would end in another way, and its entry would stay.
    ledger = names.ledger_key(sagas.prefix)
    assert not await sagas.redis.exists(f"{ledger}:active", f"{ledger}:completed")


@pytest.mark.parametrize("kept", [1000, 0], ids=["keeps", "removes"])
async def test_a_warning_names_the_worker_that_takes_wake_ups(
    worker_url: str,
    prefix: str,
    redis: Redis,
    operator_redis: Redis,
    logged: Callable[[str], bool],
    kept: int,
) -> None:
    client = await StockClient.start("bullmq6", worker_url, prefix)
    groups = JobGroups(Store(operator_redis, prefix))
    order = await groups.add_group("order", [job("charge")])
    await client.work("payments")
    await client.heard("completed", name="charge")
    await client.work(names.LEDGER_QUEUE, name="stranger", removeOnComplete={"count": kept})
    await client.heard("completed", id=order.group_id)
    driver = Driver(groups.store)
    await driver.resync()
    await driver.drain()
    await client.end()
    assert logged("(workers: stranger)" if kept else ":w:stranger at ")
    assert logged("only drivers may use this queue")
    state = await redis.hget(f"{prefix}:payments:groups:{order.group_id}", "state")
    assert state == "COMPLETED"
    await groups.remove_group(order.group_id)
    await redis.delete(*[key async for key in redis.scan_iter(f"{prefix}:*")])


async def test_groups_that_were_cleaned_as_jobs_are_put_back(
    sagas: Sagas, start_client: ClientStarter
) -> None:
    client = await start_client("bullmq6")
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    # It deletes the ledger, but not the members.
    cleaned = await client.manage(names.LEDGER_QUEUE, "clean", -10_000, 10, "waiting-children")
    assert cleaned == [order.group_id]
    await sagas.driver.resync()
    await client.work("payments")
    await client.work("inventory")
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"


async def test_a_paused_pseudo_queue_is_resumed(
    sagas: Sagas, start_client: ClientStarter, logged: Callable[[str], bool]
) -> None:
    client = await start_client("bullmq5")
    await client.manage(names.LEDGER_QUEUE, "pause")
    order = await sagas.add(job("charge"))
    await client.work("payments")
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"

    async def resumed() -> bool:
        paused = await sagas.redis.exists(f"{names.ledger_key(sagas.prefix)}:paused")
        return not paused and logged("paused the queue _jobgroups")

    await eventually(resumed)
