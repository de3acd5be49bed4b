"""Members that people run again keep their undos; none runs after its group was given up."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from jobgroup import GroupNode
from jobgroup.model import names
from testbed.servers.stock import StockClient, fails, fails_for_good, goes_back, hangs, returns
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import GROUP_EVENTS, Sagas, job, undo
from testbed.support.waiting import eventually, never_returns

SHORT_LOCK: dict[str, Any] = {"lockDuration": 1000, "stalledInterval": 500}
UNDOS = {"charge": undo("refund", attempts=1)}
RETRIES = [
    pytest.param(
        lambda job_id: {"method": "retry", "args": ["completed"], "job": job_id}, id="one"
    ),
    pytest.param(lambda _: {"method": "retryJobs", "args": [{"state": "completed"}]}, id="in-bulk"),
]
Retry = Callable[[str], dict[str, Any]]


async def order_with_a_charge(sagas: Sagas, client: StockClient) -> GroupNode:
    """Create an order whose charge has completed."""
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=UNDOS)
    await client.work("payments", {"charge": returns("tx-1")})
    await client.heard("completed", name="charge")
    return order


async def run_again(client: StockClient, order: GroupNode, retry: Retry) -> None:
    call = retry(order.jobs[0].job_id)
    await client.manage("payments", call["method"], *call["args"], job=call.get("job"))


async def the_only_refund(sagas: Sagas, client: StockClient, order: GroupNode) -> Any:
    """Return the data of the refund, after the group has ended and was reviewed once more."""
    await client.work("payments:compensation")
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    await sagas.driver.resync()
    assert client.count("started", name="refund") == 1
    return (await client.heard("started", name="refund"))["data"]


@pytest.mark.parametrize("retry", RETRIES)
async def test_a_completed_member_that_waits_for_another_run_is_undone(
    sagas: Sagas, client: StockClient, retry: Retry
) -> None:
    order = await order_with_a_charge(sagas, client)
    await client.manage("payments", "pause")
    await run_again(client, order, retry)
    await client.work("inventory", {"reserve": fails_for_good()})
    refund = await the_only_refund(sagas, client, order)
    assert refund["originalReturnValue"] == "tx-1"
    await client.manage("payments", "resume")
    assert client.count("started", name="charge") == 1


@pytest.mark.parametrize("retry", RETRIES)
async def test_a_completed_member_whose_second_run_fails_is_undone(
    sagas: Sagas, client: StockClient, retry: Retry
) -> None:
    order = await order_with_a_charge(sagas, client)
    await client.work("unused", {"charge": fails_for_good()})
    await run_again(client, order, retry)
    await client.heard("failed", name="charge")
    # A bulk retry of 5.x does not change the ledger, so that the second run is not counted.
    await client.work("inventory", {"reserve": fails_for_good()})
    refund = await the_only_refund(sagas, client, order)
    assert refund["originalReturnValue"] == "tx-1"


@pytest.mark.parametrize("retry", RETRIES)
async def test_an_undo_waits_for_the_second_run_of_its_member(
    sagas: Sagas, client: StockClient, retry: Retry
) -> None:
    order = await order_with_a_charge(sagas, client)
    await client.work("unused", {"charge": hangs(returns("tx-2"))})
    await run_again(client, order, retry)
    await client.heard("started", name="charge", after=len(client.reports) - 1)
    await client.work("payments:compensation")
    await client.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    await sagas.driver.resync()
    assert (await sagas.read(order.group_id)).undo_count == 0
    await client.release("charge")
    refund = await the_only_refund(sagas, client, order)
    assert refund["originalReturnValue"] == "tx-2"


async def test_a_completed_member_that_was_run_again_and_removed_is_undone(
    sagas: Sagas, client: StockClient
) -> None:
    order = await order_with_a_charge(sagas, client)
    await client.manage("payments", "pause")
    await client.manage("payments", "retry", "completed", job=order.jobs[0].job_id)
    await client.manage("payments", "remove", job=order.jobs[0].job_id)
    await client.work("inventory", {"reserve": fails_for_good()})
    refund = await the_only_refund(sagas, client, order)
    assert refund["originalReturnValue"] == "tx-1"
    await client.manage("payments", "resume")


async def test_the_undo_gets_the_value_of_the_last_run_that_completed(
    sagas: Sagas, client: StockClient
) -> None:
    order = await order_with_a_charge(sagas, client)
    await sagas.groups.store.settle([order.group_id])
    await client.work("unused", {"charge": returns("tx-2")})
    already = len(client.reports)
    await client.manage("payments", "retry", "completed", job=order.jobs[0].job_id)
    await client.heard("completed", after=already, name="charge")
    await client.manage("payments", "pause")
    await client.manage("payments", "retry", "completed", job=order.jobs[0].job_id)
    await client.work("inventory", {"reserve": fails_for_good()})
    refund = await the_only_refund(sagas, client, order)
    assert refund["originalReturnValue"] == "tx-2"


@pytest.mark.parametrize("removes", ["clean", "remove"])
async def test_the_undo_gets_the_value_of_the_last_run_although_its_job_was_removed(
    sagas: Sagas, client: StockClient, removes: str
) -> None:
    order = await order_with_a_charge(sagas, client)
    await sagas.groups.store.settle([order.group_id])
    await client.work("unused", {"charge": returns("tx-2")})
    already = len(client.reports)
    await client.manage("payments", "retry", "completed", job=order.jobs[0].job_id)
    await client.heard("completed", after=already, name="charge")
    if removes == "clean":
        await client.manage("payments", "clean", 0, 100, "completed")
    else:
        await client.manage("payments", "remove", job=order.jobs[0].job_id)
    await client.work("inventory", {"reserve": fails_for_good()})
    refund = await the_only_refund(sagas, client, order)
    assert refund["originalReturnValue"] == "tx-2"


@pytest.mark.parametrize("flavour", ["bullmq5"])
async def test_a_member_that_5x_retried_in_bulk_and_cleaned_is_undone(
    sagas: Sagas, start_client: ClientStarter, flavour: str
) -> None:
    """5.x does not record such a completion in the ledger."""
    client = await start_client(flavour)
    await sagas.stop()
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=UNDOS)
    await client.work("payments", {"charge": fails(1, then="tx-1")})
    await client.heard("failed", name="charge")
    await client.manage("payments", "retryJobs")
    await client.heard("completed", name="charge")
    await client.manage("payments", "clean", 0, 100, "completed")
    sagas.drive(resync_seconds=0.05)
    await client.work("inventory", {"reserve": fails_for_good()})
    refund = await the_only_refund(sagas, client, order)
    assert refund["originalReturnValue"] == "tx-1"


async def test_a_member_of_a_completed_group_that_runs_again_changes_nothing(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), undos=UNDOS)
    await client.work("payments", {"charge": returns("tx-1")})
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"
    await client.work("unused", {"charge": fails_for_good()})
    await client.manage("payments", "retry", "completed", job=order.jobs[0].job_id)
    await client.heard("failed", name="charge")
    await sagas.driver.resync()
    after = await sagas.read(order.group_id)
    assert (after.state, after.completed_count, after.failed_count) == ("COMPLETED", 1, 0)
    assert await sagas.statuses(order.group_id) == ["completed"]


async def test_an_active_member_with_attempts_left_does_not_run_again(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory", attempts=5))
    await client.work("inventory", {"reserve": hangs(fails(5))})
    await client.heard("started", name="reserve")
    await client.work("payments", {"charge": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    await client.release("reserve")
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    assert client.count("started", name="reserve") == 1


async def test_an_active_member_that_returns_to_its_queue_does_not_run_again(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    await client.work("inventory", {"reserve": hangs(goes_back())})
    await client.heard("started", name="reserve")
    await client.work("payments", {"charge": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    await sagas.stop()  # a driver would drop the job before a worker takes it
    await client.release("reserve")
    await client.heard("back", name="reserve")
    await client.heard("failed", name="reserve", reason=f"group {order.group_id} was given up")
    sagas.drive()
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    assert client.count("started", name="reserve") == 1


async def test_an_active_member_that_stalls_does_not_run_again(
    sagas: Sagas, stock: ClientStarter
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    crashing, client = await stock(own=True), await stock()
    await crashing.work("inventory", {"reserve": hangs()}, **SHORT_LOCK)
    await crashing.heard("started", name="reserve")
    await client.work("payments", {"charge": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    await sagas.stop()  # a driver would drop the job before a worker takes it
    await crashing.kill()
    await client.work("inventory", **SHORT_LOCK)
    await client.heard("stalled", id=order.jobs[1].job_id)
    await client.heard("failed", name="reserve", reason=f"group {order.group_id} was given up")
    sagas.drive()
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    assert client.count("started", name="reserve") == 0


async def test_a_member_that_was_refused_cannot_be_retried(
    sagas: Sagas, client: StockClient
) -> None:
    """The failure consumes the mark that keeps a member from running, and no driver renews it."""
    await sagas.stop()
    order = await sagas.add(*(job("charge") for _ in range(250)), undos=UNDOS)
    # One call drops 200 members; the workers take the others.
    await sagas.groups.store.settle([order.group_id], "DeadlineExceeded")
    await client.work("payments", concurrency=10)
    for _ in range(2):
        async with asyncio.timeout(60):
            while await sagas.redis.llen(f"{sagas.prefix}:payments:wait"):
                await asyncio.sleep(0.05)
        await client.manage("payments", "retryJobs")
    sagas.drive()
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.failed_count) == ("FAILED", 50)
    assert client.count("started", name="charge") == 0


async def test_a_retry_right_after_the_end_is_noticed_without_a_review(
    sagas: Sagas, start_client: ClientStarter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver follows the queues of a group that it ended, however long a review of all takes."""
    for review in ("review", "short", "unparked"):
        monkeypatch.setattr(sagas.groups.store.reviews, review, never_returns)
    client = await start_client("bullmq5")
    order = await sagas.add(job("notify", "mails"), job("charge"), undos=UNDOS)
    await client.work("payments", {"charge": fails(1)})
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    await client.manage("payments", "pause")
    await client.manage("payments", "retryJobs")
    parent, charge = names.parent_key(sagas.prefix, order.group_id), order.jobs[1].job_key

    async def is_open() -> bool:
        return bool(await sagas.redis.sismember(f"{parent}:dependencies", charge))

    await eventually(is_open)


async def test_a_member_that_completes_after_the_end_is_undone_once(
    sagas: Sagas, start_client: ClientStarter
) -> None:
    client = await start_client("bullmq5")
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(job("charge"), undos=UNDOS)
    await client.work("payments", {"charge": fails(1, then="tx-1")})
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    # A loop around getNextJob() may ignore the mark that keeps the job from running. A bulk retry
    # of 5.x wakes nobody.
    await sagas.redis.hdel(order.jobs[0].job_key, "defa")
    await client.manage("payments", "retryJobs")
    await client.heard("completed", name="charge")
    sagas.drive(resync_seconds=0.05)
    await client.work("payments:compensation", {"refund": fails_for_good()})
    after = await sagas.reaches(order.group_id, state="FAILED_COMPENSATION")
    assert (after.completed_count, after.undo_count, after.undo_failed_count) == (1, 1, 1)
    ends = [fields["state"] for _, fields in await sagas.told(client, "payments")]
    assert ends == ["FAILED", "FAILED_COMPENSATION"]
