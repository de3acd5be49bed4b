"""Status and Events: kubectl wait, columns, Events, and data that must not appear."""

import asyncio
import json
from typing import Any

import pytest
from redis import Redis

from testbed.servers.apiserver import KubectlError
from testbed.servers.stock import Behaviour, StockClient, fails, fails_for_good, returns
from testbed.support.resources import Resources, manifest
from testbed.support.sagas import job, undo
from testbed.support.stages import PAY, Stage
from testbed.support.waiting import wait_for
from tests.resources.fixtures import Shared
from tests.resources.looking import SOON, Starter, keys_with, own

SUCCESS: dict[str, Behaviour] = {}
FAILURE = {"notify": fails_for_good("no such address")}
NOT_UNDONE = {**FAILURE, "refund": fails(2, "bank closed")}


async def run(
    resources: Resources, client: StockClient, behaviour: dict[str, Behaviour], name: str = "order"
) -> None:
    """Run a group of two jobs; the first completes before the second starts."""
    payments, mails = own(resources, "payments", "mails")
    undos = {"charge": undo("refund", attempts=2, backoff=SOON)}
    resources.apply(manifest(name, job("charge", payments), job("notify", mails), undos=undos))
    await client.work(payments, behaviour)
    await client.work(f"{payments}:compensation")
    resources.reaches(name, completedCount=1)
    await client.work(mails)


# kubectl wait


@pytest.mark.parametrize(
    ("behaviour", "state"),
    [(SUCCESS, "COMPLETED"), (FAILURE, "FAILED"), (NOT_UNDONE, "FAILED_COMPENSATION")],
)
async def test_kubectl_wait_for_finished_returns_in_every_final_state(
    resources: Resources, worker: Starter, behaviour: dict[str, Behaviour], state: str
) -> None:
    await run(resources, await worker("bullmq6"), behaviour)
    resources.kubectl("wait", "--for=condition=Finished", "jobgroup/order", "--timeout=60s")
    status = resources.status("order")
    assert status["state"] == state
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions["Succeeded"] == ("True" if state == "COMPLETED" else "False")
    assert conditions.get("Compensated") == {"FAILED": "True", "COMPLETED": None}.get(
        state, "False"
    )


def test_kubectl_wait_for_finished_returns_after_a_cancellation_before_creation(
    resources: Resources,
) -> None:
    resources.apply(manifest("order", job("charge", *own(resources, "payments")), cancel=True))
    resources.kubectl("wait", "--for=condition=Finished", "jobgroup/order", "--timeout=60s")


async def test_kubectl_wait_accepts_an_object_that_no_operator_has_seen(stage: Stage) -> None:
    """It fails for an object whose conditions are null, as those of a new CRD are."""
    stage.resources.apply(manifest("order", PAY))
    wait = ("wait", "--for=condition=Finished", "jobgroup/order")
    with pytest.raises(KubectlError, match="timed out waiting for the condition"):
        stage.resources.kubectl(*wait, "--timeout=1s")
    waiting = asyncio.create_task(
        asyncio.to_thread(stage.resources.kubectl, *wait, "--timeout=60s")
    )
    stage.operator()
    await stage.worker()
    assert "condition met" in await waiting


async def test_kubectl_wait_for_a_state_returns(resources: Resources, worker: Starter) -> None:
    payments, mails = own(resources, "payments", "mails")
    jobs = (job("charge", payments), job("notify", mails))
    resources.apply(manifest("order", *jobs, undos={"charge": undo("refund")}))
    client = await worker("python")
    await client.work(payments)
    resources.reaches("order", completedCount=1)
    compensating = "--for=jsonpath={.status.state}=COMPENSATING"
    waiting = asyncio.create_task(
        asyncio.to_thread(
            resources.kubectl, "wait", compensating, "jobgroup/order", "--timeout=60s"
        )
    )
    await client.work(mails, FAILURE)
    assert "condition met" in await waiting


async def test_an_undo_retried_by_hand_completes_the_compensation(
    resources: Resources, worker: Starter
) -> None:
    client = await worker("bullmq6")
    await run(resources, client, NOT_UNDONE)
    status = resources.reaches("order", state="FAILED_COMPENSATION")
    (payments,) = own(resources, "payments")
    retried = f"{status['groupId']}-0-undo"
    await client.manage(f"{payments}:compensation", "retry", job=retried)
    resources.condition("order", "Compensated", "True")
    resources.reaches("order", state="FAILED")


# kubectl get


async def test_the_columns_show_state_and_progress(resources: Resources, worker: Starter) -> None:
    await run(resources, await worker("bullmq5"), FAILURE)
    resources.reaches("order", state="FAILED")
    head, line = resources.kubectl("get", "jg").splitlines()
    assert head.split() == [
        *("NAME", "STATE", "PROGRESS", "UNDONE", "FAILED", "JOB", "REASON", "AGE")
    ]
    assert line.split()[:6] == ["order", "FAILED", "1/2", "1/1", "notify", "Failed"]
    assert "no such address" in resources.kubectl("get", "jg", "-o", "wide")


# Events


async def test_success_posts_no_event(resources: Resources, worker: Starter) -> None:
    await run(resources, await worker("python"), SUCCESS)
    resources.reaches("order", state="COMPLETED")
    assert resources.events("order") == []


async def test_a_failure_that_is_undone_posts_three_events(
    resources: Resources, worker: Starter
) -> None:
    await run(resources, await worker("bullmq6"), FAILURE)
    resources.reaches("order", state="FAILED")
    assert resources.events("order") == [
        ("Normal", "Compensated", "failed, 1 of 1 undone"),
        ("Normal", "Compensating", "undoing the completed jobs: 1 of 2 jobs had completed"),
        ("Warning", "Failed", 'job "notify" failed: no such address'),
    ]


async def test_a_cancelled_group_that_ends_at_once_reports_compensating_first(
    resources: Resources, worker: Starter
) -> None:
    payments, mails = own(resources, "payments", "mails")
    resources.apply(manifest("order", job("charge", payments), job("notify", mails)))
    client = await worker("bullmq6")
    await client.work(payments)
    resources.reaches("order", completedCount=1)
    await client.work(mails, FAILURE)
    resources.reaches("order", state="FAILED")
    assert resources.events("order") == [
        ("Normal", "Compensating", "undoing the completed jobs: 1 of 2 jobs had completed"),
        ("Warning", "Failed", 'job "notify" failed: no such address'),
    ]


async def test_an_undo_that_fails_is_named_in_status_condition_event_and_log(
    resources: Resources, worker: Starter, shared: Shared
) -> None:
    await run(resources, await worker("bullmq5"), NOT_UNDONE)
    status = resources.reaches("order", state="FAILED_COMPENSATION")
    (payments,) = own(resources, "payments")
    end = (
        "failed, 0 of 1 undone, 1 could not be undone:"
        f" refund in {payments}:compensation failed after 2 attempts: bank closed"
    )
    lines = {line["name"]: line for line in status["jobs"]}
    assert lines["charge"]["undoFailure"] == {
        "name": "refund",
        "queueName": f"{payments}:compensation",
        "attemptsMade": 2,
        "reason": "bank closed",
    }
    assert lines["notify"]["failure"]["reason"] == "no such address"
    assert resources.stalls("order", "CompensationFailed") == end
    wait_for(lambda: f"CompensationFailed: {end}" in shared.operator.log)
    assert resources.events("order") == [
        ("Normal", "Compensating", "undoing the completed jobs: 1 of 2 jobs had completed"),
        ("Warning", "CompensationFailed", end),
        ("Warning", "Failed", 'job "notify" failed: no such address'),
    ]


def test_cancelling_posts_an_event(resources: Resources) -> None:
    resources.apply(manifest("order", job("charge", *own(resources, "payments"))))
    resources.reaches("order", state="ACTIVE")
    resources.patch("order", cancel=True)
    resources.reaches("order", state="FAILED")
    assert resources.events("order") == [("Normal", "Cancelled", "a cancellation was requested")]


def test_a_spec_that_cannot_be_run_posts_a_warning(resources: Resources) -> None:
    backoff = {"type": "exponential", "delay": 1000}
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments, attempts=50, backoff=backoff)))
    said = resources.stalls("order", "InvalidSpec")
    assert resources.events("order") == [("Warning", "InvalidSpec", said)]


# What workers write


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("x" * 1_000_000, "x" * 1024),
        ("🙂" * 300_000, "🙂" * 256),
        ("a\x00b\x1b[31mc\r\nd\u202ee", None),
    ],
    ids=["long", "wide", "control characters"],
)
async def test_a_malicious_failure_reason_is_sanitized(
    resources: Resources, worker: Starter, reason: str, told: str | None
) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments)))
    client = await worker("python")
    await client.work(payments, {"charge": fails_for_good(reason)})
    await client.heard("failed", name="charge")
    status = resources.reaches("order", state="FAILED")
    said = status["failure"]["reason"]
    assert said.isprintable()
    assert told in (None, said)
    assert len(said.encode()) <= 1024
    assert len(json.dumps(status)) < 65_536
    ((_, _, message),) = resources.events("order")
    assert message.isprintable()
    assert len(message.encode()) <= 1024


async def test_a_failure_reason_of_invalid_bytes_is_sanitized(island: Stage) -> None:
    with island.operator():
        island.resources.apply(manifest("order", job("charge", "payments")))
        group = island.resources.reaches("order", state="ACTIVE")["groupId"]
    client = await island.client("bullmq5")
    await client.work("payments", {"charge": fails_for_good()})
    await client.heard("failed", name="charge")
    island.store.hset(f"bull:payments:{group}-0", "failedReason", b"\xff\xfe\xc3(")
    with island.operator():
        status = island.resources.reaches("order", state="FAILED")
        assert status["failure"]["jobName"] == "charge"


# Data that must not appear


async def test_status_and_events_contain_no_data_and_no_return_value(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    payments, mails = own(resources, "payments", "mails")
    charge: Any = {**job("charge", payments), "data": {"card": "secret-4711"}}
    refund = {**undo("refund"), "data": {"iban": "secret-4712"}}
    resources.apply(manifest("order", charge, job("notify", mails), undos={"charge": refund}))
    client = await worker("bullmq6")
    await client.work(payments, {"charge": returns({"token": "secret-4713"})})
    await client.work(f"{payments}:compensation", {"refund": returns("secret-4714")})
    resources.reaches("order", completedCount=1)
    await client.work(mails, FAILURE)
    status = resources.reaches("order", state="FAILED", undone="1/1")
    assert "secret" not in json.dumps(status)
    assert "secret" not in json.dumps(resources.events("order"))


def test_the_status_of_a_big_group_lists_a_hundred_jobs(resources: Resources, store: Redis) -> None:
    (payments,) = own(resources, "payments")
    body = manifest("order", *(job(f"job-{n:04}", payments) for n in range(2000)))
    resources.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(body))
    status = resources.reaches("order", state="ACTIVE", totalJobs=2000)
    assert (len(status["jobs"]), status["jobsOmitted"]) == (100, 1900)
    assert len(json.dumps(status)) < 65_536
    resources.delete("order")
    resources.goes("order")
    assert keys_with(store, f"{payments}:groups:") == []
