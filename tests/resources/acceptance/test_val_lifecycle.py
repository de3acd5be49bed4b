"""VAL-01 to 05, 10 to 13, 15 and 18 through the API: create, complete, cancel, read."""

import asyncio
import json
from typing import Any

import pytest
from redis import Redis

from testbed.servers.stock import hangs
from testbed.support.errors import Rejected
from testbed.support.resources import Resources, manifest
from testbed.support.sagas import GROUP_EVENTS, job, undo
from tests.resources.looking import (
    HOUR,
    Starter,
    group_id,
    keys_with,
    kinds,
    lines,
    own,
    saga,
    told,
)


def refused(resources: Resources, body: dict[str, Any]) -> str:
    """Return the message with which the API server rejects a manifest."""
    with pytest.raises(Rejected) as caught:
        resources.apply(body)
    assert not resources.exists(body["metadata"]["name"])
    return str(caught.value)


async def test_val_01_applying_a_manifest_creates_a_group_with_all_its_jobs(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    payments, inventory, mails = own(resources, "payments", "inventory", "mails")
    undos = {"charge": undo("refund"), "reserve": undo("restock")}
    jobs = [job("charge", payments), job("reserve", inventory), job("notify", mails)]
    resources.apply(manifest("order-123", *jobs, undos=undos))
    status = resources.reaches("order-123", state="ACTIVE", totalJobs=3, progress="0/3")
    group = group_id(resources, "order-123")
    assert status["groupId"] == group

    stored = saga(store, payments, group)
    assert (stored["name"], stored["state"], stored["totalJobs"]) == ("order-123", "ACTIVE", "3")
    assert json.loads(stored["compensation"]) == undos
    client = await worker("bullmq6")
    for line, defined in zip(status["jobs"], jobs, strict=True):
        found = await client.manage(line["queueName"], "getJob", line["jobId"])
        assert (found["name"], found["data"]) == (defined["name"], defined["data"])
        assert found["opts"]["group"] == {"id": group, "name": "order-123"}


def test_val_02_a_group_without_jobs_is_refused(resources: Resources) -> None:
    assert "Group must contain at least one job" in refused(resources, manifest("order"))


def test_val_03_an_undo_of_a_missing_job_is_refused(resources: Resources, store: Redis) -> None:
    (payments,) = own(resources, "payments")
    body = manifest("order", job("charge", payments), undos={"chrage": undo("refund")})
    said = refused(resources, body)
    assert 'Compensation key "chrage" does not match any job name' in said
    assert keys_with(store, payments) == []


async def test_val_04_a_group_completes_when_all_its_jobs_have(
    resources: Resources, worker: Starter
) -> None:
    payments, inventory, mails = own(resources, "payments", "inventory", "mails")
    client = await worker("python")
    await client.listen(payments, *GROUP_EVENTS)
    resources.apply(
        manifest("order", job("charge", payments), job("reserve", inventory), job("notify", mails))
    )
    for queue in (payments, inventory):
        await client.work(queue)
    partly = resources.reaches("order", completedCount=2)
    assert (partly["state"], partly["progress"]) == ("ACTIVE", "2/3")

    await client.work(mails)
    ended = resources.reaches("order", state="COMPLETED")
    assert (ended["completedCount"], ended["progress"]) == (3, "3/3")
    heard = await client.heard("event", type="group:completed")
    expected = {"groupId": group_id(resources, "order"), "groupName": "order"}
    assert heard["fields"] == expected


async def test_val_05_a_group_completes_once_under_concurrent_workers(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    places = own(resources, "payments", "inventory", "mails")
    steps = dict(zip(("charge", "reserve", "notify"), places, strict=True))
    orders = [f"order-{n}" for n in range(5)]
    jobs = [job(name, queue) for name, queue in steps.items()]
    resources.apply(*(manifest(order, *jobs) for order in orders))
    clients = {name: await worker("bullmq5") for name in steps}
    for name, queue in steps.items():
        await clients[name].work(queue, {name: hangs()}, concurrency=len(orders))
    for order in orders:
        for line in resources.reaches(order, state="ACTIVE")["jobs"]:
            await clients[line["name"]].heard("started", id=line["jobId"])

    await asyncio.gather(*(client.release(name) for name, client in clients.items()))
    for order in orders:
        resources.reaches(order, state="COMPLETED", completedCount=3)
    events = told(store, places[0])
    assert {event for event, _ in events} == {"group:completed"}
    assert sorted(fields["groupName"] for _, fields in events) == orders


async def test_val_10_cancelling_undoes_what_completed(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    payments, inventory = own(resources, "payments", "inventory")
    charge, reserve = job("charge", payments), job("reserve", inventory)
    delayed = job("notify", inventory, delay=HOUR)
    undos = {"charge": undo("refund"), "reserve": undo("restock")}
    resources.apply(manifest("order", charge, reserve, delayed, undos=undos))
    client = await worker("bullmq6")
    await client.work(payments)
    resources.reaches("order", completedCount=1)

    resources.patch("order", cancel=True)
    status = resources.reaches("order", state="COMPENSATING")
    assert (status["cancelledCount"], status["undone"]) == (2, "0/1")
    assert lines(status) == {"charge": "completed", "reserve": "cancelled", "notify": "cancelled"}
    assert await client.manage(inventory, "getWaiting") == []
    assert await client.manage(inventory, "getDelayed") == []
    (refund,) = await client.manage(f"{payments}:compensation", "getWaiting")
    assert refund["data"]["originalJobId"] == f"{status['groupId']}-0"

    await client.work(f"{payments}:compensation")
    resources.reaches("order", state="FAILED", undone="1/1")
    assert kinds(store, payments) == ["group:compensating", "group:failed"]


async def test_val_11_cancelling_before_anything_completed_undoes_nothing(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    (payments,) = own(resources, "payments")
    names = ("charge", "reserve", "notify")
    undos = {name: undo(f"un-{name}") for name in names}
    resources.apply(manifest("order", *(job(name, payments) for name in names), undos=undos))
    resources.reaches("order", state="ACTIVE")
    client = await worker("python")
    assert len(await client.manage(payments, "getWaiting")) == 3

    resources.patch("order", cancel=True)
    status = resources.reaches("order", state="FAILED", cancelledCount=3)
    assert "compensation" not in status
    assert await client.manage(payments, "getWaiting") == []
    assert keys_with(store, f"{payments}:compensation") == []


async def test_val_12_a_completed_group_cannot_be_cancelled(
    resources: Resources, worker: Starter
) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), undos={"charge": undo("refund")}))
    await (await worker("bullmq5")).work(payments)
    resources.reaches("order", state="COMPLETED")
    with pytest.raises(Rejected, match="Cannot cancel a completed group"):
        resources.patch("order", cancel=True)
    assert resources.status("order")["state"] == "COMPLETED"


async def test_val_13_the_status_reports_the_state_of_a_group(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    payments, mails = own(resources, "payments", "mails")
    jobs = [job("charge", payments), job("reserve", payments), job("notify", mails)]
    body = manifest("order-123", *jobs)
    body["spec"]["name"] = "order-fulfillment"
    resources.apply(body)
    client = await worker("bullmq6")
    await client.work(mails, {"notify": hangs()})
    await client.heard("started", name="notify")
    await client.work(payments)
    status = resources.reaches("order-123", completedCount=2)
    assert (status["state"], status["totalJobs"]) == ("ACTIVE", 3)
    assert (status["failedCount"], status["cancelledCount"]) == (0, 0)
    assert status["startedAt"]
    assert "finishedAt" not in status
    assert saga(store, payments, status["groupId"])["name"] == "order-fulfillment"


async def test_val_15_the_status_lists_the_jobs_of_a_group(
    resources: Resources, worker: Starter
) -> None:
    payments, inventory, mails = own(resources, "payments", "inventory", "mails")
    resources.apply(
        manifest("order", job("charge", payments), job("reserve", inventory), job("notify", mails))
    )
    client = await worker("python")
    await client.work(inventory, {"reserve": hangs()})
    await client.heard("started", name="reserve")
    await client.work(payments)
    status = resources.reaches("order", completedCount=1)
    group = status["groupId"]

    def line(n: int, name: str, queue: str, how: str) -> dict[str, str]:
        return {"name": name, "queueName": queue, "jobId": f"{group}-{n}", "status": how}

    # Failed and active jobs come first.
    assert status["jobs"] == [
        line(1, "reserve", inventory, "active"),
        line(2, "notify", mails, "pending"),
        line(0, "charge", payments, "completed"),
    ]


def test_val_18_a_job_of_a_flow_is_refused(resources: Resources, store: Redis) -> None:
    (payments,) = own(resources, "payments")
    child = job("charge", payments, parent={"id": "1", "queue": "bull:flows"})
    said = refused(resources, manifest("order", job("reserve", payments), child))
    assert "A job cannot belong to both a group and a flow" in said
    assert keys_with(store, payments) == []
