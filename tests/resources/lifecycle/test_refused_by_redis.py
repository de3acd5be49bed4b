"""Redis refuses a group: its object reports it, and all others continue."""

from testbed.support.resources import manifest
from testbed.support.stages import PAY, WAIT, Stage


async def test_each_refusal_is_reported_on_its_object(stage: Stage) -> None:
    names = ("removed", "taken", "there", "sound")
    stage.resources.apply(*(manifest(name, PAY) for name in names))
    removed, taken, there, _ = (stage.resources.get(name)["metadata"]["uid"] for name in names)
    stage.store.set(f"bull:_jobgroups:tomb:{removed}", "1")
    stage.store.hset(f"bull:payments:{taken}-0", "name", "of another")
    stage.store.set(f"bull:payments:groups:{there}", "of another")
    stage.operator()
    await stage.worker()
    assert stage.resources.stalls("removed", "GroupRemoved").endswith("cannot be created again")
    assert stage.resources.stalls("taken", "JobExists").endswith("already exists")
    assert "another definition" in stage.resources.stalls("there", "GroupExists")
    stage.resources.reaches("sound", state="COMPLETED")


async def test_a_refused_object_can_still_be_cancelled_or_suspended(stage: Stage) -> None:
    names = ("cancelled", "held")
    stage.resources.apply(*(manifest(name, PAY) for name in names))
    uids = [stage.resources.get(name)["metadata"]["uid"] for name in names]
    for uid in uids:
        stage.store.hset(f"bull:payments:{uid}-0", "name", "of another")
    stage.operator()
    for name in names:
        stage.resources.stalls(name, "JobExists")
    stage.resources.patch("cancelled", cancel=True)
    stage.resources.condition("cancelled", "Finished", "True", "Cancelled")
    stage.resources.patch("held", suspend=True)
    stage.resources.condition("held", "Reconciling", "True", "Suspended")
    # The conflicting key is removed, but a suspended group is not created.
    stage.store.delete(*(f"bull:payments:{uid}-0" for uid in uids))
    stage.resources.patch("held", suspend=False)
    stage.resources.reaches("held", state="ACTIVE")
    assert stage.resources.status("cancelled")["state"] == "FAILED"


async def test_a_partly_lost_group_is_given_up_and_not_created_again(stage: Stage) -> None:
    doomed = stage.operator("doomed", FAILPOINT="status")
    stage.resources.apply(manifest("order", PAY))
    assert doomed.server.wait() == -9
    stage.free_lease()
    uid = stage.resources.get("order")["metadata"]["uid"]
    assert stage.store.delete(f"bull:payments:groups:{uid}") == 1
    stage.operator("heir")
    status = stage.resources.reaches("order", state="FAILED", progress="0/1")
    assert status["failure"]["reason"] == "keys of the queue payments were deleted"
    assert stage.store.llen("bull:payments:wait") == 0
    stage.resources.delete("order")
    stage.resources.goes("order")


async def test_a_corrupt_running_group_delays_no_other(stage: Stage) -> None:
    operator = stage.operator()
    worker = await stage.worker()
    stage.resources.apply(manifest("corrupt", PAY, WAIT))
    stage.resources.reaches("corrupt", state="ACTIVE", progress="1/2")
    uid = stage.resources.get("corrupt")["metadata"]["uid"]
    stage.store.hset(f"bull:payments:groups:{uid}", "createdAt", "x")
    await worker.release("wait")
    assert "cannot be read" in stage.resources.stalls("corrupt", "CorruptKey")
    stage.resources.apply(manifest("sound", PAY))
    stage.resources.reaches("sound", state="COMPLETED")
    assert operator.server.code is None
