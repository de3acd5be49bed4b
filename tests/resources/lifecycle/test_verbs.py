"""Cancel, delete, deadline, suspend and time to live."""

import pytest
from redis import Redis

from testbed.servers.stock import StockClient, hangs, returns
from testbed.support.errors import Rejected
from testbed.support.resources import Resources, manifest
from testbed.support.sagas import job, undo
from tests.resources.looking import (
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
    """Run a group until one job completed and one waits; return worker, queue and group id."""
    payments, mails = own(resources, "payments", "mails")
    undos = {"charge": undo("refund", attempts=2, backoff=SOON)}
    jobs = (job("charge", payments), job("notify", mails))
    resources.apply(manifest("order", *jobs, undos=undos, **spec))
    client = await worker(flavour)
    await client.work(payments)
    resources.reaches("order", state="ACTIVE", completedCount=1)
    return client, payments, group_id(resources, "order")


# cancel


def test_cancelling_before_creation_leaves_nothing_in_redis(
    resources: Resources, store: Redis
) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), cancel=True))
    assert (
        resources.stalls("order", "Cancelled")
        == "spec.cancel was set before the group was created; no job ran"
    )
    status = resources.status("order")
    assert status["state"] == "FAILED"
    assert status["finishedAt"]
    assert keys_with(store, payments) == []
    assert "finalizers" not in resources.get("order")["metadata"]


def test_a_suspended_group_can_be_cancelled(resources: Resources, store: Redis) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), suspend=True))
    resources.condition("order", "Reconciling", "True", "Suspended")
    resources.patch("order", cancel=True)
    resources.stalls("order", "Cancelled")
    resources.patch("order", suspend=False)
    resources.reaches("order", state="FAILED", observedGeneration=3)
    assert keys_with(store, payments) == []


async def test_cancelling_twice_has_no_further_effect(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    client, payments, _ = await half_done(resources, worker, "bullmq5")
    resources.patch("order", cancel=True)
    resources.patch("order", cancel=True)
    resources.reaches("order", state="COMPENSATING")
    resources.patch("order", cancel=True)
    with pytest.raises(Rejected, match="cancel cannot be set back to false"):
        resources.patch("order", cancel=False)
    await client.work(f"{payments}:compensation")
    resources.reaches("order", state="FAILED", undone="1/1")
    assert await runs(client, payments, "refund") == 1
    assert kinds(store, payments) == ["group:compensating", "group:failed"]


async def test_an_ended_group_cannot_be_cancelled(resources: Resources, worker: Starter) -> None:
    client, payments, _ = await half_done(resources, worker, "python")
    resources.patch("order", activeDeadlineSeconds=1)
    resources.reaches("order", state="COMPENSATING")
    with pytest.raises(Rejected, match="Cannot cancel group in state COMPENSATING"):
        resources.patch("order", cancel=True)
    await client.work(f"{payments}:compensation")
    resources.reaches("order", state="FAILED")
    with pytest.raises(Rejected, match="Cannot cancel group in state FAILED"):
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


async def test_deleting_posts_an_event_for_a_failed_undo(
    resources: Resources, worker: Starter
) -> None:
    client, payments, _ = await half_done(resources, worker, "bullmq5")
    resources.delete("order")
    resources.reaches("order", state="COMPENSATING")
    await client.work(f"{payments}:compensation", {"refund": {"fail": 2, "reason": "bank closed"}})
    resources.goes("order")
    events = resources.events("order")
    assert [(kind, reason) for kind, reason, _ in events] == [
        ("Normal", "Cancelled"),
        ("Normal", "Compensating"),
        ("Warning", "CompensationFailed"),
    ]
    assert f"refund in {payments}:compensation failed after " in events[-1][-1]
    assert events[-1][-1].endswith(": bank closed")


async def test_deleting_with_orphan_keeps_the_group_running(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    client, payments, group = await half_done(resources, worker, "python", deletionPolicy="Orphan")
    resources.delete("order")
    resources.goes("order")
    assert store.hget(f"bull:_jobgroups:{group}", "owner") is None
    assert saga(store, payments, group)["state"] == "ACTIVE"
    await client.work(own(resources, "mails")[0])
    ends_in_redis(store, payments, group, "COMPLETED")
    assert await runs(client, payments, "refund") == 0


async def test_setting_orphan_releases_an_object_that_is_stuck_in_deletion(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    client, payments, group = await half_done(resources, worker, "bullmq6")
    resources.delete("order")
    resources.reaches("order", state="COMPENSATING")  # its undo has no worker
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


def test_deleting_an_object_without_a_group_leaves_no_key(
    resources: Resources, store: Redis
) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), suspend=True))
    resources.condition("order", "Reconciling", "True", "Suspended")
    resources.delete("order")
    resources.goes("order")
    assert keys_with(store, payments) == []


# activeDeadlineSeconds


def test_a_group_past_its_deadline_fails(resources: Resources, store: Redis) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), activeDeadlineSeconds=1))
    status = resources.reaches("order", state="FAILED", cancelledCount=1)
    assert status["failure"] == {"reason": "DeadlineExceeded"}
    assert status["events"][1]["message"] == "spec.activeDeadlineSeconds passed"
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


async def test_a_suspended_group_is_created_once_it_is_resumed(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments), suspend=True))
    resources.condition("order", "Reconciling", "True", "Suspended")
    assert resources.status("order")["state"] == "PENDING"
    assert keys_with(store, payments) == []
    resources.patch("order", suspend=False)
    resources.reaches("order", state="ACTIVE")
    with pytest.raises(Rejected, match="Cannot suspend a group whose jobs are already in Redis"):
        resources.patch("order", suspend=True)
    await (await worker("bullmq6")).work(payments)
    resources.reaches("order", state="COMPLETED")


# ttlSecondsAfterFinished


@pytest.mark.parametrize("seconds", [0, 2])
async def test_an_ended_object_is_deleted_after_its_time_to_live(
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


def test_the_time_to_live_applies_to_objects_cancelled_before_creation(
    resources: Resources,
) -> None:
    body = manifest("order", job("charge", *own(resources, "payments")), cancel=True)
    body["spec"]["ttlSecondsAfterFinished"] = 2
    resources.apply(body)
    resources.goes("order")
