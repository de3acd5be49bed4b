"""kill -9 of the operator at each failpoint, then a new operator: the result is the same.

A failpoint is just before a write. The order must end like a second order that only the new
operator ran.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from jobgroup.resource.decisions import FINALIZER
from testbed.servers.operator import MAIN
from testbed.servers.stock import StockClient, fails_for_good
from testbed.support.resources import manifest
from testbed.support.sagas import RESIDUE, job, undo
from testbed.support.stages import LOSE, PAY, PREFIX, SHIP, UNDOS, WAIT, Stage
from testbed.support.waiting import wait_for
from testbed.support.workloads import Workloads, pool, workload

BUSY = Path(__file__).parents[1] / "lifecycle/busy_operator.py"
# It runs between PAY and LOSE.
TIP = job("tip")
# Keys that the operator keeps forever.
KEPT = re.compile(r"_jobgroups:saga:epoch")


def start_doomed(stage: Stage, failpoint: str, script: Path = MAIN) -> None:
    stage.operator("doomed", script=script, FAILPOINT=failpoint)


def dies(stage: Stage) -> None:
    """Wait until the operator has reached its failpoint, and start another."""
    assert stage.replicas[0].server.wait() == -9
    stage.free_lease()
    stage.operator("heir")


def plain(stage: Stage, name: str) -> Any:
    """Return a status without times, and with one id for all groups."""
    found = stage.resources.get(name)
    text = json.dumps(found["status"]).replace(found["metadata"]["uid"], "UID")
    text = re.sub(r'"\d{4}-\d\d-\d\dT[^"]*Z"', '"TIME"', text)
    return json.loads(text)


def events(stage: Stage, name: str) -> Any:
    return stage.resources.events(name)


def groups(stage: Stage) -> set[str]:
    """Return the ids of all groups in Redis."""
    with Redis.from_url(stage.redis.url, decode_responses=True) as redis:
        return {key.rpartition(":")[2] for key in redis.scan_iter(f"{PREFIX}:*:groups:*[^s]")} - {
            "jobs"
        }


def residue(stage: Stage) -> list[str]:
    """Return the keys that should have gone with their groups."""
    with Redis.from_url(stage.redis.url, decode_responses=True) as redis:
        keys = [key.removeprefix(f"{PREFIX}:") for key in redis.scan_iter(f"{PREFIX}:*")]
    return [key for key in keys if not RESIDUE.fullmatch(key) and not KEPT.fullmatch(key)]


def uid(stage: Stage, name: str) -> str:
    return str(stage.resources.get(name)["metadata"]["uid"])


@pytest.mark.parametrize("failpoint", ["claim", "create", "status:1", "status:2"])
async def test_a_group_that_succeeds(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    worker = await stage.worker()
    # The second status is only written if the first one was not final.
    jobs = (PAY, WAIT) if failpoint == "status:2" else (PAY, SHIP)
    stage.resources.apply(manifest("order", *jobs, undos=UNDOS))
    if failpoint == "status:2":
        stage.resources.reaches("order", state="ACTIVE")
        await worker.release("wait")
    dies(stage)
    stage.resources.reaches("order", state="COMPLETED")
    stage.resources.apply(manifest("twin", *jobs, undos=UNDOS))
    stage.resources.reaches("twin", state="COMPLETED")
    assert plain(stage, "order") == plain(stage, "twin")
    assert groups(stage) == {uid(stage, "order"), uid(stage, "twin")}
    assert await stage.runs(worker, name="pay") == 2
    assert await stage.runs(worker, name="refund") == 0


@pytest.mark.parametrize("failpoint", ["create", "tombstone_cancelled", "event:1", "status:1"])
async def test_a_group_that_is_cancelled_before_it_is_created(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    worker = await stage.worker()
    stage.resources.apply(manifest("order", PAY, SHIP, cancel=failpoint != "create"))
    assert stage.replicas[0].server.wait() == -9
    stage.resources.patch("order", cancel=True)
    dies(stage)
    stage.resources.reaches("order", state="FAILED")
    stage.resources.apply(manifest("twin", PAY, SHIP, cancel=True))
    stage.resources.reaches("twin", state="FAILED")
    assert outcome(stage, "order") == outcome(stage, "twin") == "Cancelled"
    assert events(stage, "order") == events(stage, "twin")
    assert groups(stage) == set()
    assert await stage.runs(worker, name="pay") == 0


def outcome(stage: Stage, name: str) -> str:
    """Return the reason of the Finished condition."""
    return str(stage.resources.condition(name, "Finished", "True")["reason"])


async def test_a_group_that_is_suspended_before_it_is_created(stage: Stage) -> None:
    start_doomed(stage, "create")
    worker = await stage.worker()
    stage.resources.apply(manifest("order", PAY, SHIP))
    assert stage.replicas[0].server.wait() == -9
    stage.resources.patch("order", suspend=True)
    dies(stage)
    stage.resources.condition("order", "Reconciling", "True", "Suspended")
    assert groups(stage) == set()
    stage.resources.patch("order", suspend=False)
    stage.resources.reaches("order", state="COMPLETED")
    assert await stage.runs(worker, name="pay") == 1


@pytest.mark.parametrize("failpoint", ["answer:1", "answer:2", "status:2", "event:1", "event:2"])
async def test_a_group_whose_jobs_are_answered(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    answers = {each["name"]: {"returnValue": 7, "by": "ann"} for each in (PAY, SHIP)}
    stage.resources.apply(manifest("order", PAY, SHIP, undos=UNDOS))
    stage.resources.reaches("order", state="ACTIVE")
    stage.resources.patch("order", complete=answers)
    dies(stage)
    stage.resources.reaches("order", state="COMPLETED")
    stage.resources.apply(manifest("twin", PAY, SHIP, undos=UNDOS))
    stage.resources.reaches("twin", state="ACTIVE")
    stage.resources.patch("twin", complete=answers)
    stage.resources.reaches("twin", state="COMPLETED")
    assert plain(stage, "order") == plain(stage, "twin")
    assert [line["answer"] for line in plain(stage, "order")["jobs"]] == ["Applied", "Applied"]
    assert events(stage, "order") == events(stage, "twin")
    assert len([each for each in events(stage, "order") if each[1] == "JobAnswered"]) == 2
    worker = await stage.worker()
    assert await stage.runs(worker, name="pay") == 0


# Its end has three Events: it failed, it is compensating, and its compensation failed.
@pytest.mark.parametrize("failpoint", ["retry", "event:4", "event:5"])
async def test_a_group_whose_undo_is_retried(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    await not_undone(stage, "order", PAY, LOSE)
    stage.resources.patch("order", retryUndos=1)
    if failpoint == "event:5":
        stage.resources.reaches("order", state="COMPENSATING")
        worker = await stage.worker()
        dies(stage)
    else:
        dies(stage)
        worker = await stage.worker()
    stage.resources.reaches("order", state="FAILED", undone="1/1")
    await worker.end()
    await not_undone(stage, "twin", PAY, LOSE)
    stage.resources.patch("twin", retryUndos=1)
    stage.resources.reaches("twin", state="COMPENSATING")
    worker = await stage.worker()
    stage.resources.reaches("twin", state="FAILED", undone="1/1")
    assert plain(stage, "order") == plain(stage, "twin")
    assert plain(stage, "order")["compensation"]["retries"] == 1
    assert events(stage, "order") == events(stage, "twin")


@pytest.mark.parametrize("failpoint", ["resolve:1", "resolve:2", "event:4", "event:5", "event:6"])
async def test_a_group_whose_undos_are_resolved(stage: Stage, failpoint: str) -> None:
    undos = {**UNDOS, "tip": undo("refund")}
    resolved = {name: {"reason": "by hand", "by": "ann"} for name in undos}
    start_doomed(stage, failpoint)
    await not_undone(stage, "order", PAY, TIP, LOSE, undos=undos)
    stage.resources.patch("order", resolved=resolved)
    dies(stage)
    stage.resources.reaches("order", state="FAILED", undone="0/2")
    await not_undone(stage, "twin", PAY, TIP, LOSE, undos=undos)
    stage.resources.patch("twin", resolved=resolved)
    stage.resources.reaches("twin", state="FAILED", undone="0/2")
    assert plain(stage, "order") == plain(stage, "twin")
    assert plain(stage, "order")["compensation"]["resolved"] == 2
    assert events(stage, "order") == events(stage, "twin")
    assert len([each for each in events(stage, "order") if each[1] == "UndoResolved"]) == 2


async def not_undone(stage: Stage, name: str, *jobs: Any, undos: Any = UNDOS) -> None:
    """Run an order until its undos have failed."""
    worker = await stage.worker({"refund": fails_for_good("bank closed")})
    stage.resources.apply(manifest(name, *jobs, undos=undos))
    stage.resources.reaches(name, state="FAILED_COMPENSATION")
    await worker.end()


@pytest.mark.parametrize("failpoint", ["postpone", "status:1"])
async def test_a_group_that_succeeds_in_a_burst(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint, BUSY)
    worker = await stage.worker()
    stage.resources.apply(manifest("order", PAY, SHIP, undos=UNDOS))
    dies(stage)
    stage.resources.reaches("order", state="COMPLETED")
    stage.resources.apply(manifest("twin", PAY, SHIP, undos=UNDOS))
    stage.resources.reaches("twin", state="COMPLETED")
    assert plain(stage, "order") == plain(stage, "twin")
    assert events(stage, "order") == events(stage, "twin") == []
    assert groups(stage) == {uid(stage, "order"), uid(stage, "twin")}
    assert await stage.runs(worker, name="pay") == 2


@pytest.mark.parametrize(
    "failpoint", ["postpone", "event:1", "event:2", "event:3", "status:1", "status:2"]
)
async def test_a_group_that_fails_and_is_undone_in_a_burst(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint, BUSY)
    worker = await stage.worker()
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS))
    dies(stage)
    stage.resources.reaches("order", state="FAILED")
    stage.resources.apply(manifest("twin", PAY, LOSE, undos=UNDOS))
    stage.resources.reaches("twin", state="FAILED")
    assert await undone_once(stage, worker, "order")
    assert plain(stage, "order") == plain(stage, "twin")
    assert events(stage, "order") == events(stage, "twin")
    assert groups(stage) == {uid(stage, "order"), uid(stage, "twin")}


@pytest.mark.parametrize("failpoint", ["create", "event:1", "event:2", "event:3", "status:2"])
async def test_a_group_that_fails_and_is_undone(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS))
    if failpoint != "create":
        stage.resources.reaches("order", state="ACTIVE")
    worker = await stage.worker()
    dies(stage)
    stage.resources.reaches("order", state="FAILED")
    stage.resources.apply(manifest("twin", PAY, LOSE, undos=UNDOS))
    stage.resources.reaches("twin", state="FAILED")
    assert await undone_once(stage, worker, "order")
    assert plain(stage, "order") == plain(stage, "twin")
    assert events(stage, "order") == events(stage, "twin")
    assert groups(stage) == {uid(stage, "order"), uid(stage, "twin")}


async def undone_once(stage: Stage, worker: StockClient, name: str) -> bool:
    return await stage.runs(worker, id=f"{uid(stage, name)}-0-undo") == 1


@pytest.mark.parametrize("failpoint", ["cancel", "event:1", "status:2"])
async def test_a_group_that_is_cancelled(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    worker = await stage.worker()
    await cancelled(stage, worker, "order")
    dies(stage)
    await ends_cancelled(stage, worker, "order")
    await worker.end()  # what was released once never waits again
    worker = await stage.worker()
    await cancelled(stage, worker, "twin")
    await ends_cancelled(stage, worker, "twin")
    assert plain(stage, "order") == plain(stage, "twin")
    assert events(stage, "order") == events(stage, "twin")


@pytest.mark.parametrize("failpoint", ["expire", "event:1"])
async def test_a_group_whose_deadline_passes(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    worker = await stage.worker()
    await paid(stage, worker, "order")
    stage.resources.patch("order", activeDeadlineSeconds=1)
    dies(stage)
    stage.resources.reaches("order", state="COMPENSATING", undone="1/1")
    await worker.release("wait")
    status = stage.resources.reaches("order", state="FAILED")
    assert await undone_once(stage, worker, "order")
    assert status["compensation"] == {"total": 1, "completed": 1, "failed": 0}
    reasons = [reason for _, reason, _ in events(stage, "order")]
    assert sorted(reasons) == ["Compensated", "Compensating", "DeadlineExceeded"]


@pytest.mark.parametrize("failpoint", ["cancel", "remove", "release"])
async def test_a_group_that_is_deleted_while_it_runs(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    worker = await stage.worker()
    await paid(stage, worker, "order")
    undo = f"{uid(stage, 'order')}-0-undo"
    stage.resources.delete("order")
    if failpoint != "cancel":
        await worker.heard("completed", id=undo)
        await worker.release("wait")
    dies(stage)
    await worker.heard("completed", id=undo)
    await worker.release("wait")
    stage.resources.goes("order")
    assert await stage.runs(worker, id=undo) == 1
    wait_for(lambda: residue(stage) == [])


@pytest.mark.parametrize("failpoint", ["orphan", "release"])
async def test_a_group_that_is_released_with_its_namespace(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    worker = await stage.worker()
    await paid(stage, worker, "order")
    group = uid(stage, "order")
    # Without controllers, the namespace keeps its objects.
    stage.api.kubectl("delete", "namespace", stage.namespace, "--wait=false")
    stage.resources.delete("order")
    dies(stage)
    stage.resources.goes("order")
    assert groups(stage) == {group}
    await worker.release("wait")
    # The driver of the new operator removes the group.
    wait_for(lambda: residue(stage) == [])
    assert await stage.runs(worker, id=f"{group}-0-undo") == 1


@pytest.mark.parametrize("failpoint", ["orphan", "release"])
async def test_a_group_that_is_orphaned_while_it_runs(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    worker = await stage.worker()
    await paid(stage, worker, "order", deletionPolicy="Orphan")
    group = uid(stage, "order")
    stage.resources.delete("order")
    dies(stage)
    stage.resources.goes("order")
    assert groups(stage) == {group}
    await worker.release("wait")
    await worker.heard("completed", name="wait")
    with Redis.from_url(stage.redis.url, decode_responses=True) as redis:
        wait_for(lambda: redis.hget(f"{PREFIX}:payments:groups:{group}", "state") == "COMPLETED")
    assert await stage.runs(worker, name="refund") == 0


@pytest.mark.parametrize("failpoint", ["tombstone", "release"])
async def test_an_object_that_is_deleted_before_it_has_a_group(
    stage: Stage, failpoint: str
) -> None:
    start_doomed(stage, failpoint)
    order = manifest("order", PAY, suspend=True)
    order["metadata"]["finalizers"] = [FINALIZER]
    stage.resources.apply(order)
    stage.resources.condition("order", "Reconciling", "True", "Suspended")
    stage.resources.delete("order")
    dies(stage)
    stage.resources.goes("order")
    assert groups(stage) == set()


@pytest.mark.parametrize("failpoint", ["delete", "remove", "release"])
async def test_a_group_whose_time_to_live_passes(stage: Stage, failpoint: str) -> None:
    start_doomed(stage, failpoint)
    worker = await stage.worker()
    stage.resources.apply(manifest("order", PAY, SHIP, ttlSecondsAfterFinished=0))
    dies(stage)
    stage.resources.goes("order")
    assert await stage.runs(worker, name="pay") == 1
    wait_for(lambda: residue(stage) == [])


async def test_a_pool_that_is_about_to_scale(stage: Stage) -> None:
    start_doomed(stage, "scale")
    workloads = Workloads(stage.resources)
    workloads.apply(workload("undoers"), pool("undoers", "payments:compensation"))
    await (await stage.client()).add("payments:compensation", "refund")
    dies(stage)
    workloads.scales_to("undoers", 1)
    workloads.says("undoers", "Ready", "True", "Counting")
    assert workloads.changes("undoers") == 1
    assert events(stage, "undoers") == [("Normal", "Scaled", "from 0 to 1: 1 job, 5 per replica")]


async def paid(stage: Stage, worker: StockClient, name: str, **spec: Any) -> None:
    """Run an order until its first job completed and the second waits."""
    stage.resources.apply(manifest(name, PAY, WAIT, undos=UNDOS, **spec))
    stage.resources.reaches(name, state="ACTIVE")
    await worker.heard("completed", id=f"{uid(stage, name)}-0")
    await worker.heard("started", id=f"{uid(stage, name)}-1")


async def cancelled(stage: Stage, worker: StockClient, name: str) -> None:
    await paid(stage, worker, name)
    stage.resources.patch(name, cancel=True)


async def ends_cancelled(stage: Stage, worker: StockClient, name: str) -> None:
    """Complete the job that was active at the cancellation, and wait for the end."""
    await worker.heard("completed", id=f"{uid(stage, name)}-0-undo")
    # The Events contain current counts: no other job may complete before they are posted.
    stage.resources.reaches(name, state="COMPENSATING")
    await worker.release("wait")
    stage.resources.reaches(name, state="FAILED")
    assert await undone_once(stage, worker, name)
