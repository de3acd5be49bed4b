"""Cancelling a saga: jobs that have not begun never run, and completed jobs are undone."""

import pytest

from jobgroup.resource.kinds import JOBGROUP
from testbed.support.errors import Rejected
from tests.e2e.stage import NEVER, Stage

CANCEL = {"spec": {"cancel": True}}


def test_a_cancelled_saga_is_undone(stage: Stage) -> None:
    stage.has_workers()
    stage.saga("trip", stage.job("book"), stage.job("board", delay=NEVER), undos={"book": {}})
    stage.sees("trip", state="ACTIVE", progress="1/2")

    stage.user.patch(JOBGROUP.name, "trip", CANCEL)

    stage.sees("trip", state="FAILED", undone="1/1", cancelledCount=1)
    assert stage.trail() == ["began book", "ended book", "began undo-book", "ended undo-book"]


def test_a_completed_saga_cannot_be_cancelled(stage: Stage) -> None:
    stage.has_workers()
    stage.saga("trip", stage.job("book"))
    stage.sees("trip", state="COMPLETED")

    with pytest.raises(Rejected, match="Cannot cancel a completed group"):
        stage.user.patch(JOBGROUP.name, "trip", CANCEL)
