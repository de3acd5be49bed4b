"""VAL-21: no operation of a stock client makes a saga end wrongly, hang, or lose an undo."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jobgroup import GroupNode
from jobgroup.model import names
from testbed.servers.stock import StockClient, fails, fails_for_good, hangs, returns
from testbed.support.sagas import GROUP_EVENTS, Sagas, job, undo

UNDOS = {"charge": undo("refund"), "reserve": undo("restock"), "notify": undo("retract")}
ORDER = (job("charge", "payments"), job("reserve", "inventory"), job("notify", "mails"))

PLACES = ("completed", "active", "wait")

Taking = Callable[[str], tuple[Any, ...]]


@pytest.mark.parametrize(
    "take",
    [
        pytest.param(lambda job_id: ("remove", job_id), id="remove"),
        pytest.param(lambda _: ("drain",), id="drain"),
        pytest.param(lambda _: ("clean", 0, 100, "wait"), id="clean"),
        pytest.param(lambda _: ("obliterate",), id="obliterate"),
    ],
)
async def test_val_21_a_removed_waiting_member_counts_as_failed(
    sagas: Sagas, client: StockClient, take: Taking
) -> None:
    order = await sagas.add(*ORDER, undos=UNDOS)
    await client.work("payments", {"charge": returns("tx-1")})
    await sagas.reaches(order.group_id, completed_count=1)
    await client.manage("inventory", *take(order.jobs[1].job_id))

    await sagas.driver.resync()
    found = await sagas.reaches(order.group_id, state="COMPENSATING")
    assert (found.failed_job_id, found.reason) == (order.jobs[1].job_id, "removed from its queue")
    assert await sagas.statuses(order.group_id) == ["completed", "failed", "cancelled"]
    assert await undone(sagas, client, order) == ["refund"]
    assert (await sagas.read(order.group_id)).state == "FAILED"


@pytest.mark.parametrize(
    "take",
    [
        pytest.param(lambda job_id: ("remove", job_id), id="remove"),
        pytest.param(lambda _: ("clean", 0, 100, "completed"), id="clean"),
        pytest.param(lambda _: ("obliterate",), id="obliterate"),
    ],
)
async def test_val_21_a_removed_completed_member_is_still_undone(
    sagas: Sagas, client: StockClient, take: Taking
) -> None:
    order = await sagas.add(*ORDER, undos=UNDOS)
    await client.work("payments", {"charge": returns("tx-1")})
    await sagas.reaches(order.group_id, completed_count=1)
    await client.manage("payments", *take(order.jobs[0].job_id))
    await client.work("inventory", {"reserve": fails_for_good()})

    assert await undone(sagas, client, order) == ["refund"]
    refund = await client.heard("started", name="refund")
    assert refund["data"]["originalReturnValue"] == "tx-1"
    assert (await sagas.read(order.group_id)).state == "FAILED"


async def test_val_21_reading_and_pausing_change_nothing(sagas: Sagas, client: StockClient) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(*ORDER, undos=UNDOS)
    await client.work("payments")
    await client.work("inventory", {"reserve": hangs()})
    await client.heard("started", name="reserve")
    await sagas.reaches(order.group_id, completed_count=1)
    for member in order.jobs:
        (found,) = await client.manage(member.queue_name, "getJobs", PLACES)
        assert found["id"] == member.job_id
        counts = await client.manage(member.queue_name, "getJobCounts", *PLACES)
        assert sum(counts.values()) == 1
        await client.manage(member.queue_name, "pause")
        await client.manage(member.queue_name, "resume")
    await client.release("reserve")
    await client.work("mails")
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"
    assert [event for event, _ in await sagas.told(client, "payments")] == ["group:completed"]


async def test_val_21_a_member_retried_while_compensating_does_not_run(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(*ORDER, undos=UNDOS)
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=1)
    await client.work("inventory", {"reserve": fails(1, then="shelf 2")})
    await sagas.reaches(order.group_id, state="COMPENSATING")

    await client.manage("inventory", "retry", job=order.jobs[1].job_id)
    assert await undone(sagas, client, order) == ["refund"]
    assert (await sagas.read(order.group_id)).state == "FAILED"
    assert client.count("started", name="reserve") == 1


@pytest.mark.parametrize(
    "retry",
    [
        pytest.param(lambda job_id: {"method": "retry", "job": job_id}, id="one"),
        pytest.param(lambda _: {"method": "retryJobs"}, id="in-bulk"),
    ],
)
async def test_val_21_a_member_retried_after_the_end_does_not_run(
    sagas: Sagas, client: StockClient, retry: Callable[[str], dict[str, str]]
) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(*ORDER, undos=UNDOS)
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=1)
    await client.work("inventory", {"reserve": fails(1, then="shelf 2")})
    assert await undone(sagas, client, order) == ["refund"]

    await client.manage("inventory", **retry(order.jobs[1].job_id))
    await client.heard("failed", name="reserve", reason=f"group {order.group_id} was given up")
    await sagas.driver.resync()
    assert client.count("started", name="reserve") == client.count("started", name="refund") == 1
    after = await sagas.read(order.group_id)
    assert (after.state, after.completed_count, after.undo_count) == ("FAILED", 1, 1)
    assert [event for event, _ in await sagas.told(client, "payments")] == [
        "group:compensating",
        "group:failed",
    ]


async def test_val_21_an_undo_retried_after_the_end_ends_its_group_as_if_it_had_not_failed(
    sagas: Sagas, client: StockClient
) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(*ORDER, undos={"charge": undo("refund", attempts=1)})
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=1)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work("payments:compensation", {"refund": fails(1)})
    first = await sagas.ends(order.group_id)
    assert (first.state, first.attempt) == ("FAILED_COMPENSATION", 1)

    await client.manage("payments:compensation", "retry", job=f"{order.jobs[0].job_id}-undo")
    after = await sagas.reaches(order.group_id, undone_count=1, undo_failed_count=0)
    assert (after.state, after.attempt, after.failed_at) == ("FAILED", 2, first.failed_at)
    assert after.finished_at is not None
    assert first.finished_at is not None
    assert after.finished_at > first.finished_at
    told = await sagas.told(client, "payments")
    assert [fields["state"] for event, fields in told if event == "group:failed"] == [
        "FAILED_COMPENSATION",
        "FAILED",
    ]


async def test_val_21_a_completed_member_run_again_completes_its_group_once(
    sagas: Sagas, client: StockClient
) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(*ORDER, undos=UNDOS)
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=1)
    await client.manage("payments", "retry", "completed", job=order.jobs[0].job_id)
    for queue in ("inventory", "mails"):
        await client.work(queue)
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"
    assert client.count("started", name="charge") == 2
    assert [event for event, _ in await sagas.told(client, "payments")] == ["group:completed"]


async def test_val_21_removing_orphaned_jobs_keeps_our_jobs(
    sagas: Sagas, start_client: Callable[[str], Awaitable[StockClient]]
) -> None:
    client = await start_client("bullmq6")
    order = await sagas.add(*ORDER, undos=UNDOS)

    async def remove_orphans() -> None:
        for queue in ("payments", "payments:compensation", "inventory", "mails", "_jobgroups"):
            await client.manage(queue, "removeOrphanedJobs")

    incarnation = await sagas.groups.store.incarnation()
    done = await sagas.add(job("pack", "parcels"))
    await client.work("parcels")
    await sagas.ends(done.group_id)
    await remove_orphans()
    assert (await sagas.read(done.group_id)).state == "COMPLETED"
    assert await sagas.groups.store.incarnation() == incarnation
    await sagas.redis.delete(names.incarnation_key(sagas.prefix))

    await client.work("payments", {"charge": returns("tx-1")})
    await sagas.reaches(order.group_id, completed_count=1)
    await remove_orphans()
    await client.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    await remove_orphans()
    assert await undone(sagas, client, order) == ["refund"]
    await remove_orphans()
    assert (await sagas.read(order.group_id)).state == "FAILED"


async def undone(sagas: Sagas, client: StockClient, order: GroupNode) -> list[str]:
    """Run the undos, wait until the group ends, and return the name of each undo that started."""
    for member in order.jobs:
        await client.work(f"{member.queue_name}:compensation")
    await sagas.ends(order.group_id)
    undos = {undo["name"] for undo in UNDOS.values()}
    started = [r["name"] for r in client.reports if r["event"] == "started"]
    return sorted(name for name in started if name in undos)
