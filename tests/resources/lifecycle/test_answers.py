"""spec.complete: a job is completed, or fails, without a worker."""

import json

import pytest

from testbed.servers.stock import fails_for_good
from testbed.support.errors import Rejected
from testbed.support.resources import Resources, manifest
from testbed.support.sagas import job, undo
from tests.resources.looking import Starter, own

LIMIT = {"returnValue": {"limit": 500}, "by": "ann"}


def answers(resources: Resources, name: str = "order") -> dict[str, str]:
    lines = resources.status(name)["jobs"]
    return {line["name"]: line["answer"] for line in lines if "answer" in line}


async def test_an_approval_completes_its_job(
    resources: Resources, worker: Starter, flavour: str
) -> None:
    payments, approvals = own(resources, "payments", "approvals")
    order = manifest("order", job("charge", payments), job("approve", approvals))
    resources.apply(order)
    client = await worker(flavour)
    await client.listen(approvals, "completed")
    await client.work(payments)
    resources.reaches("order", state="ACTIVE", completedCount=1)
    resources.patch("order", complete={"approve": LIMIT})
    resources.reaches("order", state="COMPLETED", completedCount=2)
    assert answers(resources) == {"approve": "Applied"}
    heard = await client.heard("event", type="completed")
    value = heard["fields"]["returnvalue"]
    assert (json.loads(value) if isinstance(value, str) else value) == {"limit": 500}
    (line,) = [
        each for each in resources.status("order")["events"] if each["type"] == "JobAnswered"
    ]
    assert line["message"] == 'the job "approve" was completed without a worker by ann'
    assert ("Normal", "JobAnswered", line["message"]) in resources.events("order")

    # Later changes have no effect, and neither has their removal.
    resources.patch(
        "order", complete={"approve": {"failed": "no", "returnValue": None, "by": "ben"}}
    )
    resources.reaches("order", state="COMPLETED", observedGeneration=3)
    assert answers(resources) == {"approve": "Refused"}
    resources.patch("order", complete=None)
    resources.reaches("order", state="COMPLETED", observedGeneration=4)
    assert answers(resources) == {}


async def test_a_declined_job_fails_and_the_others_are_undone(
    resources: Resources, worker: Starter
) -> None:
    payments, approvals = own(resources, "payments", "approvals")
    jobs = (job("charge", payments), job("approve", approvals, attempts=3))
    resources.apply(manifest("order", *jobs, undos={"charge": undo("refund")}))
    client = await worker("bullmq6")
    await client.work(payments)
    await client.work(f"{payments}:compensation")
    resources.reaches("order", state="ACTIVE", completedCount=1)
    resources.patch("order", complete={"approve": {"failed": "too expensive", "by": "ann"}})
    status = resources.reaches("order", state="FAILED", undone="1/1")
    assert status["failure"]["reason"] == "too expensive"
    assert answers(resources) == {"approve": "Applied"}


async def test_an_answer_waits_for_an_active_job(resources: Resources, worker: Starter) -> None:
    payments, mails = own(resources, "payments", "mails")
    jobs = (job("charge", payments, attempts=2, backoff=3_600_000), job("notify", mails))
    resources.apply(manifest("order", *jobs))
    client = await worker("bullmq6")
    await client.work(payments, {"charge": {"hang": True, "fail": 1, "reason": "busy"}})
    await client.heard("started", name="charge")
    resources.patch("order", complete={"charge": LIMIT, "notify": {"by": "ann"}})
    resources.reaches("order", completedCount=1)
    resources.reaches("order", observedGeneration=2)
    assert answers(resources) == {"charge": "Waiting", "notify": "Applied"}
    # It waits for its second attempt now, in an hour.
    await client.release("charge")
    resources.reaches("order", state="COMPLETED")
    assert answers(resources) == {"charge": "Applied", "notify": "Applied"}


async def test_an_answer_to_a_group_that_is_not_active_is_refused(
    resources: Resources, worker: Starter
) -> None:
    payments, mails = own(resources, "payments", "mails")
    jobs = (job("charge", payments), job("notify", mails))
    resources.apply(manifest("order", *jobs))
    client = await worker("python")
    await client.work(payments, {"charge": fails_for_good()})
    resources.reaches("order", state="FAILED")
    resources.patch("order", complete={"charge": LIMIT, "notify": LIMIT})
    resources.reaches("order", state="FAILED", observedGeneration=2)
    assert answers(resources) == {"charge": "Refused", "notify": "Refused"}


async def test_an_answer_that_is_given_while_suspended_is_applied_after_the_creation(
    resources: Resources, worker: Starter
) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), suspend=True))
    resources.condition("order", "Reconciling", "True", "Suspended")
    resources.patch("order", complete={"charge": LIMIT})
    resources.patch("order", suspend=False)
    resources.reaches("order", state="COMPLETED")
    assert answers(resources) == {"charge": "Applied"}


def test_a_copy_of_an_answered_object_is_refused(resources: Resources) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments)))
    resources.patch("order", complete={"charge": LIMIT})
    resources.reaches("order", state="COMPLETED")
    copy = resources.get("order")
    copy["metadata"] = {"name": "copy"}
    with pytest.raises(Rejected, match="complete cannot be set on creation"):
        resources.apply(copy)
    # Applying the manifest again keeps the answer; replacing the object removes it.
    order = manifest("order", job("charge", payments))
    resources.apply(order)
    assert resources.get("order")["spec"]["complete"] == {"charge": LIMIT}
    resources.kubectl("replace", "-f", "-", stdin=json.dumps(order))
    assert "complete" not in resources.get("order")["spec"]
    resources.reaches("order", state="COMPLETED", observedGeneration=3)
    assert answers(resources) == {}
