"""removeOnComplete and removeOnFail of a member apply after the end of its group."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jobgroup import GroupNode
from jobgroup.model import names
from testbed.servers.stock import StockClient, fails, fails_for_good, hangs, returns
from testbed.support.fixtures import QueueNamer
from testbed.support.sagas import Sagas, job, undo
from testbed.support.waiting import eventually

StartClient = Callable[[str], Awaitable[StockClient]]


async def kept(sagas: Sagas, *orders: GroupNode) -> list[str]:
    """Return the jobs that still exist, as <order>-<member>."""
    ids = {
        made.job_id: f"{n}-{m}"
        for n, order in enumerate(orders)
        for m, made in enumerate(order.jobs)
    }
    found = {key.rpartition(":")[2] for key in await sagas.keys("payments:*")}
    return [name for job_id, name in ids.items() if job_id in found]


async def test_a_member_is_removed_after_the_end_of_its_group(
    sagas: Sagas, client: StockClient
) -> None:
    members = [
        job("charge", removeOnComplete=True),
        job("reserve", removeOnComplete=0),
        job("note", removeOnFail=True),
        job("mail", "mails"),
    ]
    order = await sagas.add(*members)
    await client.work("payments", {"charge": returns(1)})
    await sagas.reaches(order.group_id, completed_count=3)
    assert await kept(sagas, order) == ["0-0", "0-1", "0-2"]

    await client.work("mails")
    assert (await sagas.ends(order.group_id)).completed_count == 4
    assert await kept(sagas, order) == ["0-2"]
    assert await sagas.statuses(order.group_id) == ["completed"] * 4


async def test_a_removed_failed_member_is_still_listed(sagas: Sagas, client: StockClient) -> None:
    members = [
        job("charge", removeOnComplete={"count": 0}, removeOnFail=False),
        job("refuse", delay=50, removeOnFail=True),
    ]
    order = await sagas.add(*members, undos={"charge": undo("refund")})
    await client.work("payments", {"charge": returns({"id": 7}), "refuse": fails_for_good("no")})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    assert await kept(sagas, order) == ["0-0", "0-1"]

    await client.work("payments:compensation")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.reason, ended.undone_count) == ("FAILED", "no", 1)
    assert await kept(sagas, order) == []
    assert await sagas.statuses(order.group_id) == ["completed", "failed"]


async def test_the_retention_of_a_worker_does_not_apply_to_members_and_undos(
    sagas: Sagas, client: StockClient
) -> None:
    nothing: dict[str, Any] = {"removeOnComplete": {"count": 0}, "removeOnFail": {"count": 0}}
    members = [job("charge"), job("refuse", delay=50)]
    order = await sagas.add(*members, undos={"charge": undo("refund")})
    await client.work("payments", {"refuse": fails_for_good("no")}, **nothing)
    await client.work("payments:compensation", **nothing)
    assert (await sagas.ends(order.group_id)).undone_count == 1
    assert await kept(sagas, order) == ["0-0", "0-1"]
    refund = names.undo_id(order.jobs[0].job_id)
    assert await sagas.redis.exists(f"{sagas.prefix}:payments:compensation:{refund}")


@pytest.mark.parametrize("keep", [2, {"count": 2, "age": 3600}])
async def test_a_count_is_kept_and_other_jobs_are_not_removed(
    sagas: Sagas, start_client: StartClient, queue: QueueNamer, keep: object
) -> None:
    queue("payments")
    client = await start_client("bullmq6")
    foreign = await client.add("payments", "foreign")
    running = await sagas.add(job("charge"), job("hang", "mails"))
    await client.work("payments")
    await client.work("mails", {"hang": hangs()})
    await sagas.reaches(running.group_id, completed_count=1)
    orders = []
    for _ in range(4):
        orders.append(await sagas.add(job("charge", removeOnComplete=keep)))
        await sagas.ends(orders[-1].group_id)
    assert await kept(sagas, *orders) == ["2-0", "3-0"]
    assert await kept(sagas, running) == ["0-0"]
    assert await sagas.redis.exists(f"{sagas.prefix}:payments:{foreign}")
    await client.release("hang")
    await sagas.ends(running.group_id)


async def test_a_job_whose_result_is_not_in_the_ledger_is_kept(
    sagas: Sagas, start_client: StartClient
) -> None:
    client = await start_client("bullmq5")
    failed = await sagas.add(job("charge", attempts=1), undos={"charge": undo("refund")})
    await client.work("payments", {"charge": fails(1), "pack": returns(1)})
    await sagas.ends(failed.group_id)
    # A loop around getNextJob() may ignore the mark that keeps the job from running. A bulk retry
    # of 5.x does not change the ledger, so only the queue has the result.
    await sagas.redis.hdel(failed.jobs[0].job_key, "defa")
    await client.manage("payments", "retryJobs")
    await client.heard("completed", name="charge")
    for _ in range(2):
        order = await sagas.add(job("pack", removeOnComplete=1))
        await sagas.ends(order.group_id)

    await sagas.driver.resync()
    await client.work("payments:compensation")
    await sagas.reaches(failed.group_id, undone_count=1)


async def test_jobs_beyond_their_age_are_removed(sagas: Sagas, start_client: StartClient) -> None:
    client = await start_client("bullmq6")
    await client.work("payments")
    old = await sagas.add(job("charge"))
    await sagas.ends(old.group_id)
    completed = f"{sagas.prefix}:payments:completed"
    await sagas.redis.zincrby(completed, -61_000, old.jobs[0].job_id)
    young = await sagas.add(job("charge", removeOnComplete={"age": 60}))
    await sagas.ends(young.group_id)
    assert await kept(sagas, old, young) == ["1-0"]


async def test_all_members_of_a_large_group_are_removed(
    sagas: Sagas, start_client: StartClient
) -> None:
    client = await start_client("bullmq6")
    order = await sagas.add(*(job(f"job-{n}", removeOnComplete=True) for n in range(1500)))
    await client.work("payments", concurrency=50)
    await sagas.ends(order.group_id)

    async def removed() -> bool:
        return not await kept(sagas, order)

    await eventually(removed)
    assert await sagas.redis.llen(names.wakeups_key(sagas.prefix)) == 0
    assert await sagas.driver.resync() == 0
