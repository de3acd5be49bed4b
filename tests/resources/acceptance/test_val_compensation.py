"""VAL-06 to 09, 16, 17, 19 and 20 through the API: a failure undoes the completed jobs only."""

import json
from typing import Any

from redis import Redis

from testbed.servers.stock import fails, fails_for_good, hangs, returns
from testbed.support.resources import Resources, manifest
from testbed.support.sagas import job, undo
from tests.resources.looking import SOON, Starter, keys_with, kinds, lines, own, runs, told


async def test_val_06_a_failed_job_undoes_its_completed_siblings(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    payments, inventory, mails = own(resources, "payments", "inventory", "mails")
    resources.apply(
        manifest(
            "order",
            job("charge", payments),
            job("reserve", inventory),
            job("notify", mails, attempts=2),
            undos={"charge": undo("refund"), "reserve": undo("restock"), "notify": undo("retract")},
        )
    )
    client = await worker("bullmq5")
    await client.work(payments, {"charge": returns({"tx": 1})})
    await client.work(inventory, {"reserve": returns(["shelf", 2])})
    resources.reaches("order", completedCount=2)
    await client.work(mails, {"notify": fails(2, "no such address")})
    status = resources.reaches("order", state="COMPENSATING", undone="0/2")
    group = status["groupId"]
    assert lines(status) == {"charge": "completed", "reserve": "completed", "notify": "failed"}
    assert status["failure"] == {
        "jobName": "notify",
        "jobId": f"{group}-2",
        "reason": "no such address",
        "attemptsMade": 2,
    }

    for queue in (payments, inventory, mails):
        await client.work(f"{queue}:compensation")
    resources.reaches("order", state="FAILED", undone="2/2")
    for n, name, undone_by, value in (
        (0, "charge", "refund", {"tx": 1}),
        (1, "reserve", "restock", ["shelf", 2]),
    ):
        started = await client.heard("started", name=undone_by)
        assert started["data"] == {
            "groupId": group,
            "originalJobName": name,
            "originalJobId": f"{group}-{n}",
            "originalReturnValue": value,
            "compensationData": {"orderId": "123"},
        }
    assert await runs(client, payments, "retract") == 0
    (first, compensating), (last, _) = told(store, payments)
    assert (first, last) == ("group:compensating", "group:failed")
    assert compensating["failedJobId"] == f"{group}-2"


async def test_val_07_nothing_is_undone_when_the_first_job_fails(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    payments, inventory, mails = own(resources, "payments", "inventory", "mails")
    resources.apply(
        manifest(
            "order",
            job("charge", payments, attempts=2),
            job("reserve", inventory),
            job("notify", mails),
            undos={"charge": undo("refund"), "reserve": undo("restock"), "notify": undo("retract")},
        )
    )
    client = await worker("python")
    await client.work(payments, {"charge": fails(2, "card declined")})
    status = resources.reaches("order", state="FAILED", failedCount=1, cancelledCount=2)
    assert lines(status) == {"charge": "failed", "reserve": "cancelled", "notify": "cancelled"}
    assert status["failure"]["reason"] == "card declined"
    assert "compensation" not in status
    for queue in (inventory, mails):
        assert await client.manage(queue, "getWaiting") == []
    for queue in (payments, inventory, mails):
        assert keys_with(store, f"{queue}:compensation") == []
    assert kinds(store, payments) == ["group:failed"]


async def test_val_08_undos_are_retried(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    payments, inventory, mails = own(resources, "payments", "inventory", "mails")
    resources.apply(
        manifest(
            "order",
            job("charge", payments),
            job("reserve", inventory),
            job("notify", mails),
            undos={"charge": undo("refund", backoff=SOON), "reserve": undo("restock")},
        )
    )
    client = await worker("bullmq6")
    await client.work(payments)
    await client.work(inventory)
    resources.reaches("order", completedCount=2)
    await client.work(mails, {"notify": fails_for_good()})
    await client.work(f"{payments}:compensation", {"refund": fails(1)})
    await client.work(f"{inventory}:compensation")

    status = resources.reaches("order", state="FAILED", undone="2/2")
    assert status["compensation"] == {"total": 2, "completed": 2, "failed": 0}
    assert await runs(client, payments, "refund") == 2
    assert await runs(client, payments, "restock") == 1
    event, fields = told(store, payments)[-1]
    assert (event, fields["state"]) == ("group:failed", "FAILED")


async def test_val_09_an_undo_that_fails_for_good_fails_the_compensation(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    payments, inventory = own(resources, "payments", "inventory")
    undos = {"charge": undo("refund", attempts=2, backoff=SOON)}
    resources.apply(
        manifest("order", job("charge", payments), job("reserve", inventory), undos=undos)
    )
    client = await worker("bullmq5")
    await client.work(payments)
    resources.reaches("order", completedCount=1)
    await client.work(inventory, {"reserve": fails_for_good()})
    await client.work(f"{payments}:compensation", {"refund": fails(2)})

    status = resources.reaches("order", state="FAILED_COMPENSATION")
    assert status["compensation"] == {"total": 1, "completed": 0, "failed": 1}
    assert await runs(client, payments, "refund") == 2
    event, fields = told(store, payments)[-1]
    assert (event, fields["state"]) == ("group:failed", "FAILED_COMPENSATION")
    assert json.loads(fields["compensationResults"]) == [
        {"jobId": f"{status['groupId']}-0-undo", "status": "failed"}
    ]


async def test_val_16_a_delayed_job_is_cancelled(resources: Resources, worker: Starter) -> None:
    payments, mails = own(resources, "payments", "mails")
    resources.apply(manifest("order", job("charge", payments), job("notify", mails, delay=60_000)))
    resources.reaches("order", state="ACTIVE")
    client = await worker("python")
    assert len(await client.manage(mails, "getDelayed")) == 1
    await client.work(payments, {"charge": fails_for_good()})
    status = resources.reaches("order", state="FAILED", cancelledCount=1)
    assert lines(status) == {"charge": "failed", "notify": "cancelled"}
    assert await client.manage(mails, "getDelayed") == []


async def test_val_17_a_prioritized_job_is_cancelled(resources: Resources, worker: Starter) -> None:
    payments, mails = own(resources, "payments", "mails")
    resources.apply(manifest("order", job("charge", payments), job("notify", mails, priority=5)))
    resources.reaches("order", state="ACTIVE")
    client = await worker("bullmq5")
    assert len(await client.manage(mails, "getPrioritized")) == 1
    await client.work(payments, {"charge": fails_for_good()})
    status = resources.reaches("order", state="FAILED", cancelledCount=1)
    assert lines(status) == {"charge": "failed", "notify": "cancelled"}
    assert await client.manage(mails, "getPrioritized") == []


async def test_val_19_an_undo_receives_the_return_value_of_its_job(
    resources: Resources, worker: Starter
) -> None:
    payments, inventory = own(resources, "payments", "inventory")
    returned: Any = {"transactionId": "tx-456", "to": "Zoë", "parts": [99.99, None, {}, []]}
    undos = {"charge": undo("refund")}
    resources.apply(
        manifest("order", job("charge", payments), job("reserve", inventory), undos=undos)
    )
    client = await worker("bullmq6")
    await client.work(payments, {"charge": returns(returned)})
    resources.reaches("order", completedCount=1)
    await client.work(inventory, {"reserve": fails_for_good()})
    await client.work(f"{payments}:compensation")
    started = await client.heard("started", name="refund")
    assert started["data"]["originalReturnValue"] == returned
    resources.reaches("order", state="FAILED")


async def test_val_20_an_active_job_finishes_and_is_undone_too(
    resources: Resources, worker: Starter
) -> None:
    payments, inventory, mails = own(resources, "payments", "inventory", "mails")
    resources.apply(
        manifest(
            "order",
            job("charge", payments),
            job("reserve", inventory),
            job("notify", mails),
            undos={"charge": undo("refund"), "reserve": undo("restock")},
        )
    )
    client = await worker("python")
    await client.work(inventory, {"reserve": hangs(then=returns("shelf 2"))})
    await client.heard("started", name="reserve")
    await client.work(payments)
    resources.reaches("order", completedCount=1)
    await client.work(mails, {"notify": fails_for_good()})
    status = resources.reaches("order", state="COMPENSATING", undone="0/1")
    assert lines(status) == {"charge": "completed", "reserve": "active", "notify": "failed"}

    await client.release("reserve")
    await client.heard("completed", name="reserve")
    late = resources.reaches("order", completedCount=2, undone="0/2")
    assert late["state"] == "COMPENSATING"
    assert lines(late) == {"charge": "completed", "reserve": "completed", "notify": "failed"}
    for queue in (payments, inventory):
        await client.work(f"{queue}:compensation")
    resources.reaches("order", state="FAILED", undone="2/2")
    assert await runs(client, payments, "restock") == 1
