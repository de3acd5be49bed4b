"""A saga is given up on its way: what has not begun never does, and what was done is undone."""

from tests.e2e.stage import NEVER, Stage

CANCEL = '{"spec": {"cancel": true}}'


def test_a_cancelled_saga_is_undone(stage: Stage) -> None:
    stage.has_workers()
    stage.saga("trip", stage.job("book"), stage.job("board", delay=NEVER), undos={"book": {}})
    stage.sees("trip", state="ACTIVE", progress="1/2")

    stage.kubectl("patch", "jobgroup", "trip", "--type=merge", "--patch", CANCEL)

    stage.sees("trip", state="FAILED", undone="1/1", cancelledCount="1")
    assert stage.trail() == ["began book", "ended book", "began undo-book", "ended undo-book"]


def test_a_saga_that_is_over_cannot_be_cancelled(stage: Stage) -> None:
    stage.has_workers()
    stage.saga("trip", stage.job("book"))
    stage.sees("trip", state="COMPLETED")

    refused = stage.kubectl.attempt("patch", "jobgroup", "trip", "--type=merge", "--patch", CANCEL)

    assert "Cannot cancel a completed group" in refused.stderr
