"""VAL-06, 07, 08, 09, 19, 20: a failure undoes the jobs that completed, and no others."""

import json
from typing import Any

from testbed.servers.stock import StockClient, fails, fails_for_good, hangs, returns
from testbed.support.sagas import GROUP_EVENTS, Sagas, job, undo

SOON = {"type": "fixed", "delay": 1}


async def test_val_06_a_failed_job_undoes_its_completed_siblings(
    sagas: Sagas, client: StockClient
) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(
        job("charge", "payments"),
        job("reserve", "inventory"),
        job("notify", "mails", attempts=2),
        undos={"charge": undo("refund"), "reserve": undo("restock"), "notify": undo("retract")},
    )
    charge, reserve, notify = order.jobs
    await client.work("payments", {"charge": returns({"tx": 1})})
    await client.work("inventory", {"reserve": returns(["shelf", 2])})
    await sagas.reaches(order.group_id, completed_count=2)
    await client.work("mails", {"notify": fails(2, "no such address")})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    assert await sagas.statuses(order.group_id) == ["completed", "completed", "failed"]
    assert client.count("failed", id=notify.job_id) == 2

    for queue in ("payments", "inventory", "mails"):
        await client.work(f"{queue}:compensation")
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    for member, name, undone_by, value in (
        (charge, "charge", "refund", {"tx": 1}),
        (reserve, "reserve", "restock", ["shelf", 2]),
    ):
        started = await client.heard("started", name=undone_by)
        assert started["data"] == {
            "groupId": order.group_id,
            "originalJobName": name,
            "originalJobId": member.job_id,
            "originalReturnValue": value,
            "compensationData": {"orderId": "123"},
        }
    assert client.count("started", name="retract") == 0
    compensating, failed = await sagas.told(client, "payments")
    assert compensating == (
        "group:compensating",
        {
            "groupId": order.group_id,
            "groupName": "order",
            "failedJobId": notify.job_id,
            "reason": "no such address",
        },
    )
    assert failed[0] == "group:failed"


async def test_val_06_two_failures_at_once_start_one_compensation(
    sagas: Sagas, client: StockClient
) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(
        job("charge", "payments"),
        job("reserve", "inventory"),
        job("notify", "mails"),
        undos={"charge": undo("refund")},
    )
    await client.work("payments")
    await client.work("inventory", {"reserve": hangs(then=fails_for_good())})
    await client.work("mails", {"notify": hangs(then=fails_for_good())})
    await sagas.reaches(order.group_id, completed_count=1)
    for name in ("reserve", "notify"):
        await client.heard("started", name=name)
    for name in ("reserve", "notify"):
        await client.release(name)
    await client.work("payments:compensation")

    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.completed_count, ended.failed_count) == ("FAILED", 1, 2)
    assert client.count("started", name="refund") == 1
    told = await sagas.told(client, "payments")
    assert [event for event, _ in told] == ["group:compensating", "group:failed"]


async def test_val_06_a_completed_job_without_an_undo_is_skipped(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=1)
    await client.work("inventory", {"reserve": fails_for_good()})
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    assert await sagas.keys("*:compensation:*") == []


async def test_val_07_nothing_is_undone_when_the_first_job_fails(
    sagas: Sagas, client: StockClient
) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(
        job("charge", "payments", attempts=2),
        job("reserve", "inventory"),
        job("notify", "mails"),
        undos={"charge": undo("refund"), "reserve": undo("restock"), "notify": undo("retract")},
    )
    await client.work("payments", {"charge": fails(2, "card declined")})

    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.failed_count, ended.cancelled_count) == ("FAILED", 1, 2)
    assert (ended.failed_job_id, ended.reason) == (order.jobs[0].job_id, "card declined")
    assert await sagas.statuses(order.group_id) == ["failed", "cancelled", "cancelled"]
    for queue in ("inventory", "mails"):
        assert await client.manage(queue, "getWaiting") == []
    assert await sagas.keys("*:compensation:*") == []
    ((event, fields),) = await sagas.told(client, "payments")
    assert (event, fields["state"]) == ("group:failed", "FAILED")


async def test_val_08_undos_are_retried(sagas: Sagas, client: StockClient) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(
        job("charge", "payments"),
        job("reserve", "inventory"),
        job("notify", "mails"),
        undos={"charge": undo("refund"), "reserve": undo("restock", attempts=5, backoff=SOON)},
    )
    await client.work("payments")
    await client.work("inventory")
    await sagas.reaches(order.group_id, completed_count=2)
    await client.work("mails", {"notify": fails_for_good()})
    await client.work("payments:compensation", {"refund": fails(1)})
    await client.work("inventory:compensation")

    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count, ended.undo_failed_count) == ("FAILED", 2, 0)
    assert (client.count("started", name="refund"), client.count("started", name="restock")) == (
        2,
        1,
    )
    default = (await client.heard("started", name="refund"))["opts"]
    assert (default["attempts"], default["backoff"]) == (3, {"type": "exponential", "delay": 1000})
    chosen = (await client.heard("started", name="restock"))["opts"]
    assert (chosen["attempts"], chosen["backoff"]) == (5, SOON)
    event, fields = (await sagas.told(client, "payments"))[-1]
    assert (event, fields["state"]) == ("group:failed", "FAILED")


async def test_val_09_an_undo_that_fails_for_good_fails_the_compensation(
    sagas: Sagas, client: StockClient
) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(
        job("charge"),
        job("reserve", "inventory"),
        undos={"charge": undo("refund", attempts=2, backoff=SOON)},
    )
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=1)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work("payments:compensation", {"refund": fails(2)})

    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undo_failed_count) == ("FAILED_COMPENSATION", 1)
    assert client.count("started", name="refund") == 2
    event, fields = (await sagas.told(client, "payments"))[-1]
    assert (event, fields["state"]) == ("group:failed", "FAILED_COMPENSATION")
    assert json.loads(fields["compensationResults"]) == [
        {"jobId": f"{order.jobs[0].job_id}-undo", "status": "failed"}
    ]


async def test_val_19_an_undo_receives_the_result_of_its_job(
    sagas: Sagas, client: StockClient
) -> None:
    returned: Any = {"transactionId": "tx-456", "to": "Zoë", "parts": [99.99, None, {}, []]}
    order = await sagas.add(
        job("charge"), job("reserve", "inventory"), undos={"charge": undo("refund")}
    )
    await client.work("payments", {"charge": returns(returned)})
    await sagas.reaches(order.group_id, completed_count=1)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work("payments:compensation")
    started = await client.heard("started", name="refund")
    assert started["data"]["originalReturnValue"] == returned
    await sagas.ends(order.group_id)


async def test_val_20_an_active_job_finishes_and_is_undone_too(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(
        job("charge", "payments"),
        job("reserve", "inventory"),
        job("notify", "mails"),
        undos={"charge": undo("refund"), "reserve": undo("restock")},
    )
    await client.work("payments")
    await client.work("inventory", {"reserve": hangs(then=returns("shelf 2"))})
    await client.heard("started", name="reserve")
    await sagas.reaches(order.group_id, completed_count=1)
    await client.work("mails", {"notify": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    assert await sagas.statuses(order.group_id) == ["completed", "active", "failed"]

    await client.release("reserve")
    await client.heard("completed", name="reserve")
    late = await sagas.reaches(order.group_id, completed_count=2, undo_count=2)
    assert late.state == "COMPENSATING"
    assert await sagas.statuses(order.group_id) == ["completed", "completed", "failed"]
    for queue in ("payments", "inventory"):
        await client.work(f"{queue}:compensation")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 2)
    assert client.count("started", name="restock") == 1
    restock = await client.heard("started", name="restock")
    assert restock["data"]["originalReturnValue"] == "shelf 2"
