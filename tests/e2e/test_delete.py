"""Deleting a running saga undoes it first; kubectl returns when that is done."""

from testbed.kubectl import PATIENCE
from tests.e2e.stage import NEVER, Stage


def test_a_running_saga_is_undone_and_then_gone(stage: Stage) -> None:
    stage.has_workers()
    stage.saga("trip", stage.job("book"), stage.job("board", delay=NEVER), undos={"book": {}})
    stage.sees("trip", state="ACTIVE", progress="1/2")

    stage.kubectl("delete", "jobgroup", "trip", PATIENCE)

    assert stage.trail() == ["began book", "ended book", "began undo-book", "ended undo-book"]
    assert stage.kubectl("get", "jobgroups", "--ignore-not-found") == ""


def test_a_saga_that_is_to_be_forgotten_goes_by_itself(stage: Stage) -> None:
    stage.has_workers()
    stage.saga("trip", stage.job("book"), ttlSecondsAfterFinished=1)

    stage.kubectl.wait_gone("jobgroup/trip")

    assert stage.trail() == ["began book", "ended book"]


def test_a_namespace_goes_with_the_sagas_that_run_in_it(stage: Stage) -> None:
    stage.saga("trip", stage.job("book"), undos={"book": {}})
    stage.sees("trip", state="ACTIVE")

    stage.kubectl("delete", "namespace", stage.kubectl.namespace, PATIENCE)

    left = stage.redis("EXISTS", f"bull:{stage.queue}:wait")
    assert left.strip() == "0", "what nobody had begun was taken out of its queue"
