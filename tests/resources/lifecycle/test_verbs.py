"""The verbs of a life: cancel, delete, deadline, suspend, time to live."""

import pytest
from redis import Redis

from testbed.apiserver import KubectlError
from testbed.resources import Resources, manifest
from testbed.sagas import job, undo
from testbed.stock import StockClient, hangs, returns
from tests.handlers.looking import (
    SOON,
    Starter,
    ends_in_redis,
    group_id,
    keys_with,
    kinds,
    own,
    runs,
    saga,
    told,
    traces,
)


async def half_done(
    resources: Resources, worker: Starter, flavour: str, **spec: object
) -> tuple[StockClient, str, str]:
    """Have a group of which one job completed and one waits; return a worker, a queue, its id."""
    payments, mails = own(resources, "payments", "mails")
    undos = {"charge": undo("refund", attempts=2, backoff=SOON)}
    jobs = (job("charge", payments), job("notify", mails))
    resources.apply(manifest("order", *jobs, undos=undos, **spec))
    client = await worker(flavour)
    await client.work(payments)
    resources.reaches("order", state="ACTIVE", completedCount=1)
    return client, payments, group_id(resources, "order")


# cancel


def test_cancelling_before_creation_ends_it_with_nothing_in_redis(
    resources: Resources, store: Redis
) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), cancel=True))
    assert resources.stalls("order", "Cancelled") == "cancelled before it was created"
    status = resources.status("order")
    assert status["state"] == "FAILED"
    assert status["finishedAt"]
    assert keys_with(store, payments) == []
    assert "finalizers" not in resources.get("order")["metadata"]


def test_cancelling_what_is_suspended_ends_it(resources: Resources, store: Redis) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), suspend=True))
    resources.condition("order", "Reconciling", "True", "Suspended")
    resources.patch("order", cancel=True)
    resources.stalls("order", "Cancelled")
    resources.patch("order", suspend=False)
    resources.reaches("order", state="FAILED", observedGeneration=3)
    assert keys_with(store, payments) == []


async def test_cancelling_twice_is_cancelling_once(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    client, payments, _ = await half_done(resources, worker, "bullmq5")
    resources.patch("order", cancel=True)
    resources.patch("order", cancel=True)
    resources.reaches("order", state="COMPENSATING")
    resources.patch("order", cancel=True)
    with pytest.raises(KubectlError, match="cancel cannot be taken back"):
        resources.patch("order", cancel=False)
    await client.work(f"{payments}:compensation")
    resources.reaches("order", state="FAILED", undone="1/1")
    assert await runs(client, payments, "refund") == 1
    assert kinds(store, payments) == ["group:compensating", "group:failed"]


async def test_an_ended_group_cannot_be_cancelled(resources: Resources, worker: Starter) -> None:
    client, payments, _ = await half_done(resources, worker, "python")
    resources.patch("order", activeDeadlineSeconds=1)
    resources.reaches("order", state="COMPENSATING")
    with pytest.raises(KubectlError, match="Cannot cancel group in state COMPENSATING"):
        resources.patch("order", cancel=True)
    await client.work(f"{payments}:compensation")
    resources.reaches("order", state="FAILED")
    with pytest.raises(KubectlError, match="Cannot cancel group in state FAILED"):
        resources.patch("order", cancel=True)


# delete


async def test_deleting_a_running_group_undoes_it_first_and_leaves_no_key(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    client, payments, group = await half_done(resources, worker, "bullmq6")
    resources.delete("order")
    status = resources.reaches("order", state="COMPENSATING", undone="0/1")
    assert status["cancelledCount"] == 1
    assert "deletionTimestamp" in resources.get("order")["metadata"]
    await client.work(f"{payments}:compensation")
    resources.goes("order")
    assert await runs(client, payments, "refund") == 1
    assert traces(store, group) == []
    assert store.exists(f"bull:_jobgroups:tomb:{group}")


async def test_deleting_tells_of_an_undo_that_failed_before_the_object_is_gone(
    resources: Resources, worker: Starter
) -> None:
    client, payments, _ = await half_done(resources, worker, "bullmq5")
    resources.delete("order")
    resources.reaches("order", state="COMPENSATING")
    await client.work(f"{payments}:compensation", {"refund": {"fail": 2, "reason": "bank closed"}})
    resources.goes("order")
    assert [(kind, reason) for kind, reason, _ in resources.events("order")] == [
        ("Normal", "Cancelled"),
        ("Normal", "Compensating"),
        ("Warning", "CompensationFailed"),
    ]


async def test_deleting_a_running_group_that_is_orphaned_lets_it_run_to_its_end(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    client, payments, group = await half_done(resources, worker, "python", deletionPolicy="Orphan")
    resources.delete("order")
    resources.goes("order")
    assert store.hget(f"bull:_jobgroups:{group}", "owner") == "headless"
    assert saga(store, payments, group)["state"] == "ACTIVE"
    await client.work(own(resources, "mails")[0])
    ends_in_redis(store, payments, group, "COMPLETED")
    assert await runs(client, payments, "refund") == 0


async def test_orphaning_frees_what_is_stuck_in_deletion(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    client, payments, group = await half_done(resources, worker, "bullmq6")
    resources.delete("order")
    resources.reaches("order", state="COMPENSATING")  # and nobody works on its undo
    resources.patch("order", deletionPolicy="Orphan")
    resources.goes("order")
    assert saga(store, payments, group)["state"] == "COMPENSATING"
    await client.work(f"{payments}:compensation")
    ends_in_redis(store, payments, group, "FAILED")


async def test_deleting_an_ended_group_removes_every_key_of_it(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    client, _, group = await half_done(resources, worker, "bullmq5")
    await client.work(own(resources, "mails")[0])
    resources.reaches("order", state="COMPLETED")
    assert traces(store, group) != []
    resources.kubectl("delete", "jobgroup", "order", "--timeout=60s")
    assert not resources.exists("order")
    assert traces(store, group) == []


def test_deleting_what_was_never_made_leaves_nothing(resources: Resources, store: Redis) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), suspend=True))
    resources.condition("order", "Reconciling", "True", "Suspended")
    resources.delete("order")
    resources.goes("order")
    assert keys_with(store, payments) == []


# activeDeadlineSeconds


def test_a_group_past_its_deadline_is_given_up(resources: Resources, store: Redis) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), activeDeadlineSeconds=1))
    status = resources.reaches("order", state="FAILED", cancelledCount=1)
    assert status["failure"] == {"reason": "DeadlineExceeded"}
    assert status["events"][1]["message"] == "its deadline passed"
    assert kinds(store, payments) == ["group:failed"]


async def test_a_deadline_may_be_set_and_moved_while_the_group_runs(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    client, payments, _ = await half_done(resources, worker, "python", activeDeadlineSeconds=3600)
    resources.patch("order", activeDeadlineSeconds=None)
    resources.reaches("order", state="ACTIVE", observedGeneration=2)
    resources.patch("order", activeDeadlineSeconds=1)
    resources.reaches("order", state="COMPENSATING")
    await client.work(f"{payments}:compensation")
    resources.reaches("order", state="FAILED", undone="1/1")
    (_, compensating), _ = told(store, payments)
    assert (compensating["failedJobId"], compensating["reason"]) == ("", "DeadlineExceeded")


async def test_a_deadline_never_ends_compensation(resources: Resources, worker: Starter) -> None:
    client, payments, _ = await half_done(resources, worker, "bullmq5")
    resources.patch("order", cancel=True)
    resources.reaches("order", state="COMPENSATING")
    resources.patch("order", activeDeadlineSeconds=1)
    resources.reaches("order", state="COMPENSATING", observedGeneration=3)
    await client.work(f"{payments}:compensation", {"refund": hangs(then=returns(None))})
    await client.heard("started", name="refund")
    await client.release("refund")
    resources.reaches("order", state="FAILED", undone="1/1")


# suspend


async def test_a_suspended_group_is_made_once_it_is_released(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), suspend=True))
    resources.condition("order", "Reconciling", "True", "Suspended")
    assert resources.status("order")["state"] == "PENDING"
    assert keys_with(store, payments) == []
    resources.patch("order", suspend=False)
    resources.reaches("order", state="ACTIVE")
    with pytest.raises(KubectlError, match="Cannot suspend a group whose jobs were let go"):
        resources.patch("order", suspend=True)
    await (await worker("bullmq6")).work(payments)
    resources.reaches("order", state="COMPLETED")


# ttlSecondsAfterFinished


@pytest.mark.parametrize("seconds", [0, 2])
async def test_an_ended_group_goes_when_its_time_is_over(
    resources: Resources, store: Redis, worker: Starter, seconds: int
) -> None:
    client, _, group = await half_done(resources, worker, "python", ttlSecondsAfterFinished=seconds)
    await client.work(own(resources, "mails")[0])
    resources.goes("order")
    assert traces(store, group) == []


async def test_the_time_to_live_may_be_set_after_the_end(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    client, _, group = await half_done(resources, worker, "bullmq5", ttlSecondsAfterFinished=3600)
    await client.work(own(resources, "mails")[0])
    resources.reaches("order", state="COMPLETED")
    resources.patch("order", ttlSecondsAfterFinished=1)
    resources.goes("order")
    assert traces(store, group) == []


def test_what_was_cancelled_before_creation_goes_in_time_too(resources: Resources) -> None:
    body = manifest("order", job("charge", *own(resources, "payments")), cancel=True)
    body["spec"]["ttlSecondsAfterFinished"] = 2
    resources.apply(body)
    resources.goes("order")
