"""spec.retryUndos and spec.resolved: undos that failed are retried, or resolved."""

import json
from typing import Any

import pytest
from redis import Redis

from testbed.servers.stock import Behaviour, StockClient, fails_for_good, hangs
from testbed.support.errors import Rejected
from testbed.support.resources import Resources, manifest
from testbed.support.sagas import job, undo
from testbed.support.scrapes import Scrape
from testbed.support.waiting import wait_for
from tests.resources.fixtures import Shared
from tests.resources.looking import Starter, kinds, own, runs

REFUNDED = {"reason": "refunded by hand, ticket 4711", "by": "ann"}
CLOSED = {"refund": fails_for_good("bank closed")}


def order(resources: Resources) -> dict[str, Any]:
    payments, mails = own(resources, "payments", "mails")
    jobs = (job("charge", payments), job("notify", mails))
    return manifest("order", *jobs, undos={"charge": undo("refund")})


async def given_up(
    resources: Resources, worker: Starter, flavour: str, undos: dict[str, Behaviour] | None = None
) -> StockClient:
    """Run a group until its second job has failed; return the worker, also of its undo."""
    payments, mails = own(resources, "payments", "mails")
    resources.apply(order(resources))
    client = await worker(flavour)
    await client.work(payments)
    resources.reaches("order", state="ACTIVE", completedCount=1)
    if undos is not None:
        await client.work(f"{payments}:compensation", undos)
    await client.work(mails, {"notify": fails_for_good()})
    return client


async def not_undone(resources: Resources, worker: Starter, flavour: str) -> None:
    """Run a group until its undo has failed, and end its worker."""
    client = await given_up(resources, worker, flavour, CLOSED)
    resources.reaches("order", state="FAILED_COMPENSATION", undone="0/1")
    await client.end()


def times(resources: Resources, reason: str) -> int:
    return [each for _, each, _ in resources.events("order")].count(reason)


def resolved_undos(shared: Shared) -> float:
    return Scrape.of(shared.operator).by("outcome", "jobgroup_undos_total")["resolved"]


def resolution(resources: Resources) -> tuple[str | None, dict[str, str] | None]:
    (line,) = [each for each in resources.status("order")["jobs"] if each["name"] == "charge"]
    return line.get("undo"), line.get("resolved")


async def test_failed_undos_are_retried_once_their_worker_is_mended(
    resources: Resources, store: Redis, worker: Starter, flavour: str
) -> None:
    (payments,) = own(resources, "payments")
    await not_undone(resources, worker, flavour)
    resources.patch("order", retryUndos=1)
    status = resources.reaches("order", state="COMPENSATING")
    assert status["compensation"] == {"total": 1, "completed": 0, "failed": 0, "retries": 1}
    client = await worker(flavour)
    await client.work(f"{payments}:compensation")
    status = resources.reaches("order", state="FAILED", undone="1/1")
    assert status["compensation"] == {"total": 1, "completed": 1, "failed": 0, "retries": 1}
    assert resources.condition("order", "Compensated", "True")
    line = "the failed undos were retried"
    assert [each["message"] for each in status["events"]].count(line) == 1
    assert ("Normal", "UndosRetried", line) in resources.events("order")
    assert times(resources, "CompensationFailed") == times(resources, "Compensated") == 1

    # It does not act again, and neither does its removal.
    for generation, value in ((3, 2), (4, None)):
        resources.patch("order", retryUndos=value)
        resources.reaches("order", state="FAILED", observedGeneration=generation)
    assert await runs(client, f"{payments}:compensation", "refund") == 1
    assert kinds(store, payments) == [
        *("group:compensating", "group:failed", "group:compensating", "group:failed")
    ]


async def test_each_retry_is_one_more_than_those_before(
    resources: Resources, worker: Starter
) -> None:
    (payments,) = own(resources, "payments")
    client = await given_up(resources, worker, "bullmq6", CLOSED)
    resources.reaches("order", state="FAILED_COMPENSATION", undone="0/1")
    resources.patch("order", retryUndos=2)
    status = resources.reaches("order", state="FAILED_COMPENSATION", observedGeneration=2)
    wait_for(lambda: resources.status("order")["compensation"].get("retries") == 2)
    resources.reaches("order", state="FAILED_COMPENSATION")
    status = resources.reaches("order", state="FAILED_COMPENSATION", undone="0/1")
    assert status["compensation"]["retries"] == 2
    wait_for(lambda: times(resources, "CompensationFailed") == 3)
    # The manifest without the field keeps it, kubectl replace removes it: nothing is retried.
    resources.apply(order(resources))
    assert resources.get("order")["spec"]["retryUndos"] == 2
    resources.kubectl("replace", "-f", "-", stdin=json.dumps(order(resources)))
    assert "retryUndos" not in resources.get("order")["spec"]
    resources.reaches("order", state="FAILED_COMPENSATION", observedGeneration=3)
    # A lower number than the retries so far does nothing.
    resources.patch("order", retryUndos=1)
    resources.reaches("order", state="FAILED_COMPENSATION", observedGeneration=4)
    assert await runs(client, f"{payments}:compensation", "refund") == 3


async def test_a_failed_undo_is_resolved(
    resources: Resources, store: Redis, worker: Starter, flavour: str, shared: Shared
) -> None:
    (payments,) = own(resources, "payments")
    await not_undone(resources, worker, flavour)
    before = resolved_undos(shared)
    resources.patch("order", resolved={"charge": REFUNDED})
    status = resources.reaches("order", state="FAILED", undone="0/1")
    assert status["compensation"] == {"total": 1, "completed": 0, "failed": 0, "resolved": 1}
    shown = {"by": "ann", "reason": "refunded by hand, ticket 4711"}
    assert resolution(resources) == ("resolved", shown)
    assert resources.condition("order", "Compensated", "True")
    line = 'the undo of the job "charge" was resolved by ann: refunded by hand, ticket 4711'
    assert ("Normal", "UndoResolved", line) in resources.events("order")

    # The first resolution holds: changes and the removal do nothing.
    for generation, value in ((3, {"charge": {"reason": "it stays", "by": "ben"}}), (4, None)):
        resources.patch("order", resolved=value)
        resources.reaches("order", state="FAILED", observedGeneration=generation)
        assert resolution(resources) == ("resolved", shown)
    assert times(resources, "UndoResolved") == 1
    assert resolved_undos(shared) == before + 1
    client = await worker(flavour)
    await client.work(f"{payments}:compensation")
    assert await runs(client, f"{payments}:compensation", "refund") == 0
    assert kinds(store, payments) == ["group:compensating", "group:failed", "group:failed"]


async def test_an_undo_that_waits_is_resolved_in_the_name_of_its_object(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    (payments,) = own(resources, "payments")
    await given_up(resources, worker, "python")
    resources.reaches("order", state="COMPENSATING", undone="0/1")
    resources.patch("order", resolved={"charge": {"reason": "the\ncustomer pays"}})
    resources.reaches("order", state="FAILED", undone="0/1")
    name = f"{resources.namespace}/order"
    assert resolution(resources) == ("resolved", {"by": name, "reason": "the customer pays"})
    line = 'the undo of the job "charge" was resolved: the customer pays'
    assert ("Normal", "UndoResolved", line) in resources.events("order")
    assert store.llen(f"bull:{payments}:compensation:wait") == 0


async def test_a_resolution_stands_until_its_undo_does_not_run_any_more(
    resources: Resources, worker: Starter, shared: Shared
) -> None:
    (payments,) = own(resources, "payments")
    # It is given before the undo exists.
    resources.apply(order(resources))
    resources.reaches("order", state="ACTIVE")
    resources.patch("order", resolved={"charge": REFUNDED})
    resources.reaches("order", state="ACTIVE", observedGeneration=2)
    resources.patch("order", resolved=None)
    client = await given_up(resources, worker, "bullmq5", {"refund": hangs(CLOSED["refund"])})
    await client.heard("started", name="refund")
    resources.patch("order", resolved={"charge": REFUNDED})
    resources.reaches("order", state="COMPENSATING", observedGeneration=4)
    wait_for(lambda: "is running: resolve it when it has failed" in shared.operator.log)
    assert resolution(resources) == ("pending", None)
    await client.release("refund")
    resources.reaches("order", state="FAILED", undone="0/1")
    assert resolution(resources)[0] == "resolved"
    assert await runs(client, f"{payments}:compensation", "refund") == 1


async def test_an_undo_that_completed_is_not_resolved(
    resources: Resources, worker: Starter
) -> None:
    await given_up(resources, worker, "bullmq6", {})
    resources.reaches("order", state="FAILED", undone="1/1")
    resources.patch("order", resolved={"charge": REFUNDED})
    resources.reaches("order", state="FAILED", observedGeneration=2, undone="1/1")
    assert resolution(resources) == ("completed", None)
    assert times(resources, "UndoResolved") == 0


async def test_a_deleted_object_goes_when_its_last_undo_is_resolved(
    resources: Resources, worker: Starter
) -> None:
    await given_up(resources, worker, "bullmq6")
    resources.reaches("order", state="COMPENSATING", undone="0/1")
    resources.delete("order")
    resources.patch("order", resolved={"charge": REFUNDED})
    resources.goes("order")
    assert ("Normal", "UndoResolved") in [each[:2] for each in resources.events("order")]


async def test_a_copy_of_an_object_with_resolutions_is_refused(
    resources: Resources, worker: Starter
) -> None:
    await not_undone(resources, worker, "bullmq6")
    resources.patch("order", retryUndos=0, resolved={"charge": REFUNDED})
    resources.reaches("order", state="FAILED")
    copy = resources.get("order")
    copy["metadata"] = {"name": "copy"}
    for field in ("retryUndos", "resolved"):
        with pytest.raises(Rejected, match=f"{field} cannot be set on creation"):
            resources.apply(copy)
        del copy["spec"][field]
    resources.kubectl("replace", "-f", "-", stdin=json.dumps(order(resources)))
    assert "resolved" not in resources.get("order")["spec"]
    resources.reaches("order", state="FAILED", observedGeneration=3)
    assert resolution(resources)[0] == "resolved"
