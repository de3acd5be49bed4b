"""A job that is retried manually after the end of its group: the object always reports it.

The operator reconciles the object of an ended group only after a change. So an entry of the stream
must not be lost with the operator that read it.
"""

import pytest

from jobgroup.model.names import job_key
from testbed.servers.stock import StockClient, fails, fails_for_good
from testbed.support.resources import manifest
from testbed.support.sagas import undo
from testbed.support.stages import LOSE, PAY, PREFIX, Stage
from testbed.support.waiting import wait_for
from tests.resources.looking import newest_entry

UNDO = {"pay": undo("refund", attempts=1)}


async def not_undone(stage: Stage) -> StockClient:
    """Run an order whose undo fails, but would succeed in a second attempt."""
    worker = await stage.worker({"refund": fails(1, "the bank is closed")})
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDO))
    stage.resources.reaches("order", state="FAILED_COMPENSATION")
    stage.resources.condition("order", "Compensated", "False")
    return worker


async def retry(stage: Stage, worker: StockClient) -> None:
    """Retry the failed undo, as the runbook describes."""
    job = f"{stage.resources.get('order')['metadata']['uid']}-0-undo"
    await worker.manage("payments:compensation", "retry", job=job)
    await worker.heard("completed", id=job)


def caught_up(stage: Stage) -> None:
    """Wait until the operator has saved its checkpoint at the newest entry."""
    (stream,) = stage.store.scan_iter(f"{PREFIX}:_jobgroups:changed:*")
    heard = stream.replace("changed", "heard")
    wait_for(lambda: stage.store.hvals(heard) == [newest_entry(stage.store, stream)])


def told(stage: Stage) -> None:
    """Check that the object reports the completed undo and the new end, once."""
    stage.resources.condition("order", "Compensated", "True")
    status = stage.resources.reaches("order", state="FAILED", undone="1/1")
    assert status["compensation"] == {"total": 1, "completed": 1, "failed": 0}
    ends = [each for each in stage.resources.events("order") if each[1].startswith("Compensat")]
    assert sorted((reason, kind) for kind, reason, _ in ends if reason != "Compensating") == [
        ("Compensated", "Normal"),
        ("CompensationFailed", "Warning"),
    ]


async def test_an_undo_is_retried(stage: Stage) -> None:
    stage.operator()
    worker = await not_undone(stage)
    await retry(stage, worker)
    told(stage)


async def test_an_undo_is_retried_without_an_operator(stage: Stage) -> None:
    operator = stage.operator()
    worker = await not_undone(stage)
    operator.server.stop()
    await retry(stage, worker)
    stage.operator("heir")
    told(stage)


@pytest.mark.parametrize("failpoint", ["late", "event", "status"])
async def test_the_operator_is_killed_after_it_read_a_change(stage: Stage, failpoint: str) -> None:
    operator = stage.operator()
    worker = await not_undone(stage)
    # Otherwise the operator with the failpoint would already be killed by an older entry.
    caught_up(stage)
    operator.server.stop()
    doomed = stage.operator("doomed", FAILPOINT=failpoint)
    await retry(stage, worker)
    assert doomed.server.wait() == -9
    stage.free_lease()
    stage.operator("heir")
    told(stage)


async def test_an_undo_that_fails_after_the_end_changes_the_state(stage: Stage) -> None:
    stage.operator()
    client = await stage.client("bullmq5")
    await client.work("payments", {"pay": fails(1, then="tx-1")})
    stage.resources.apply(manifest("order", PAY, undos=UNDO))
    stage.resources.reaches("order", state="FAILED")
    # A loop around getNextJob() may ignore the mark that keeps the job from running.
    uid = stage.resources.get("order")["metadata"]["uid"]
    stage.store.hdel(job_key(PREFIX, "payments", f"{uid}-0"), "defa")
    await client.manage("payments", "retryJobs")
    await client.heard("completed", name="pay")
    await client.work("payments:compensation", {"refund": fails_for_good()})
    stage.resources.reaches("order", state="FAILED_COMPENSATION", undone="0/1")
    stage.resources.condition("order", "Compensated", "False")
    reasons = [reason for _, reason, _ in stage.resources.events("order")]
    assert "CompensationFailed" in reasons
