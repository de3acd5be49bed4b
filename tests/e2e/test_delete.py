"""Deleting a running saga undoes it first; the object exists until that is done."""

from jobgroup.resource.kinds import JOBGROUP
from tests.e2e.stage import NEVER, Stage


def test_a_running_saga_is_undone_before_it_is_gone(stage: Stage) -> None:
    stage.has_workers()
    stage.saga("trip", stage.job("book"), stage.job("board", delay=NEVER), undos={"book": {}})
    stage.sees("trip", state="ACTIVE", progress="1/2")

    stage.user.delete(JOBGROUP.name, "trip")
    stage.user.wait_gone(JOBGROUP.name)

    assert stage.trail() == ["began book", "ended book", "began undo-book", "ended undo-book"]


def test_a_saga_with_a_ttl_is_deleted_after_it_has_ended(stage: Stage) -> None:
    stage.has_workers()
    stage.saga("trip", stage.job("book"), ttlSecondsAfterFinished=1)

    stage.user.wait_gone(JOBGROUP.name)

    assert stage.trail() == ["began book", "ended book"]


def test_a_namespace_is_deleted_with_the_sagas_that_run_in_it(stage: Stage) -> None:
    stage.saga("trip", stage.job("book"), undos={"book": {}})
    stage.sees("trip", state="ACTIVE")

    stage.user.delete("Namespace", stage.user.namespace)
    stage.user.wait_gone("Namespace", field_selector=f"metadata.name={stage.user.namespace}")

    left = stage.redis("EXISTS", f"bull:{stage.queue}:wait")
    assert left.strip() == "0", "the job that no worker had begun is still in its queue"
