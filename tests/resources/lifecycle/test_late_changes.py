"""A job is retried by hand after its group had ended: the object tells, whatever happens meanwhile.

Nobody looks at the objects of ended groups by himself, so what Redis told of one must not be lost
with the operator that heard it.
"""

import pytest

from testbed.resources import manifest
from testbed.sagas import undo
from testbed.stages import LOSE, PAY, PREFIX, Stage
from testbed.stock import StockClient, fails
from testbed.waiting import wait_for
from tests.handlers.looking import newest_entry

UNDO = {"pay": undo("refund", attempts=1)}


async def not_undone(stage: Stage) -> StockClient:
    """Run an order whose undo fails, and would not fail again."""
    worker = await stage.worker({"refund": fails(1, "the bank is closed")})
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDO))
    stage.resources.reaches("order", state="FAILED_COMPENSATION")
    stage.resources.condition("order", "Compensated", "False")
    return worker


async def retry(stage: Stage, worker: StockClient) -> None:
    """Do what the runbook says."""
    job = f"{stage.resources.get('order')['metadata']['uid']}-0-undo"
    await worker.manage("payments:compensation", "retry", job=job)
    await worker.heard("completed", id=job)


def caught_up(stage: Stage) -> None:
    """Wait until the operator has noted that it looked at all that Redis told."""
    (stream,) = stage.store.scan_iter(f"{PREFIX}:_jobgroups:changed:*")
    heard = stream.replace("changed", "heard")
    wait_for(lambda: stage.store.hvals(heard) == [newest_entry(stage.store, stream)])


def told(stage: Stage) -> None:
    """See the object tell that all is undone, and that this came late."""
    stage.resources.condition("order", "Compensated", "True")
    status = stage.resources.reaches("order", state="FAILED_COMPENSATION", undone="1/1")
    assert status["compensation"] == {"total": 1, "completed": 1, "failed": 0}
    late = [each for each in stage.resources.events("order") if each[1] == "LateChange"]
    assert [kind for kind, _, _ in late] == ["Warning"]


async def test_an_undo_is_retried(stage: Stage) -> None:
    stage.operator()
    worker = await not_undone(stage)
    await retry(stage, worker)
    told(stage)


async def test_an_undo_is_retried_while_nobody_is_there(stage: Stage) -> None:
    operator = stage.operator()
    worker = await not_undone(stage)
    operator.server.stop()
    await retry(stage, worker)
    stage.operator("heir")
    told(stage)


@pytest.mark.parametrize("failpoint", ["late", "event", "status"])
async def test_the_operator_dies_with_what_it_heard(stage: Stage, failpoint: str) -> None:
    operator = stage.operator()
    worker = await not_undone(stage)
    # Or the doomed one would die of what it has to look at once more.
    caught_up(stage)
    operator.server.stop()
    doomed = stage.operator("doomed", FAILPOINT=failpoint)
    await retry(stage, worker)
    assert doomed.server.wait() == -9
    stage.free_lease()
    stage.operator("heir")
    told(stage)
