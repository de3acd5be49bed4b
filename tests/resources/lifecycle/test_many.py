"""Many groups at once, and one group many times: each status equals the state in Redis."""

import json
import random
from collections import Counter
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from jobgroup import Store
from testbed.servers.stock import fails_for_good
from testbed.support.resources import manifest
from testbed.support.sagas import job, undo
from testbed.support.stages import PAY, PREFIX, SHIP, UNDOS, WAIT, Stage
from testbed.support.waiting import wait_for

GROUPS = 300
FINISHED = 1000
ENDED = ("COMPLETED", "FAILED", "FAILED_COMPENSATION")
FAILING = {f"{kind}-{n}": fails_for_good() for kind in ("lose", "keep") for n in range(3)}


def orders(seed: int) -> list[dict[str, Any]]:
    """Return orders of one to three jobs; some fail, most can be undone, some undos fail."""
    dice = random.Random(seed)  # noqa: S311 (no secret)
    made = []
    for number in range(GROUPS):
        jobs, undos = [], {}
        for place in range(dice.randint(1, 3)):
            name = f"{'lose' if dice.random() < 0.2 else 'pay'}-{place}"
            jobs.append(job(name, dice.choice(["payments", "shipping"])))
            if dice.random() < 0.8:
                undos[name] = undo(f"{'keep' if dice.random() < 0.1 else 'refund'}-{place}")
        made.append(manifest(f"order-{number}", *jobs, undos=undos))
    return made


def listed(stage: Stage) -> list[dict[str, Any]]:
    found: dict[str, Any] = json.loads(stage.resources.kubectl("get", "jobgroups", "-o", "json"))
    return list(found["items"])


def said(body: dict[str, Any]) -> tuple[Any, ...]:
    """Return the state and counts of a status."""
    status = body["status"]
    undos = status.get("compensation") or {"total": 0, "completed": 0, "failed": 0}
    counts = (status["completedCount"], status["failedCount"], status["cancelledCount"])
    return (status["state"], *counts, undos["total"], undos["completed"], undos["failed"])


async def known(store: Store, uid: str) -> tuple[Any, ...]:
    """Return the state and counts of the group in Redis."""
    group = await store.read(uid)
    assert group is not None
    counts = (group.completed_count, group.failed_count, group.cancelled_count)
    return (
        group.state,
        *counts,
        group.undo_count,
        group.undone_count,
        group.undo_failed_count,
    )


@pytest.mark.parametrize("seed", [1])
async def test_every_status_equals_redis_in_the_end(stage: Stage, seed: int) -> None:
    operator = stage.operator()
    worker = await stage.worker(FAILING, concurrency=20)
    stage.resources.apply(*orders(seed))

    def all_ended() -> bool:
        states = [(each.get("status") or {}).get("state") for each in listed(stage)]
        return len(states) == GROUPS and all(state in ENDED for state in states)

    wait_for(all_ended)
    objects = listed(stage)
    assert {each["status"]["state"] for each in objects} == set(ENDED)
    async with AsyncRedis.from_url(stage.redis.url, decode_responses=True) as redis:
        store = Store(redis, PREFIX)
        for each in objects:
            assert said(each) == await known(store, each["metadata"]["uid"])
    await stage.runs(worker)
    undos = Counter(
        report["id"]
        for report in worker.reports
        if report["event"] in ("completed", "failed") and report["id"].endswith("-undo")
    )
    totals = [(each["status"].get("compensation") or {}).get("total", 0) for each in objects]
    assert len(undos) == sum(totals) > 0
    refunds = [each for each, name in names(worker.reports).items() if name.startswith("refund")]
    assert {undos[each] for each in refunds} == {1}
    assert "ERROR" not in operator.log
    assert "Traceback" not in operator.log


def names(reports: list[dict[str, Any]]) -> dict[str, str]:
    """Return the names of the started undos by id."""
    return {
        report["id"]: report["name"]
        for report in reports
        if report["event"] == "started" and report["id"].endswith("-undo")
    }


async def test_the_same_manifest_twice_changes_nothing(stage: Stage) -> None:
    stage.operator()
    worker = await stage.worker()
    order = manifest("order", PAY, SHIP, undos=UNDOS)
    stage.resources.apply(order)
    stage.resources.reaches("order", state="COMPLETED")
    before = stage.resources.get("order")
    stage.resources.apply(order)
    stage.resources.apply(manifest("another", PAY, SHIP))
    stage.resources.reaches("another", state="COMPLETED")
    assert stage.resources.get("order") == before
    assert await stage.runs(worker, name="pay") == 2


async def test_two_managers_apply_the_same_object(stage: Stage) -> None:
    stage.operator()
    worker = await stage.worker()
    order = manifest("order", PAY, WAIT, undos=UNDOS)
    apply_as(stage, "alice", order)
    stage.resources.reaches("order", state="ACTIVE")
    policy = manifest("order", deletionPolicy="Orphan")
    del policy["spec"]["jobs"]
    apply_as(stage, "bob", policy)
    apply_as(stage, "alice", order)
    await worker.release("wait")
    status = stage.resources.reaches("order", state="COMPLETED")
    found = stage.resources.get("order")
    assert found["spec"]["deletionPolicy"] == "Orphan"
    assert status["observedGeneration"] == found["metadata"]["generation"] == 2
    assert await stage.runs(worker, name="pay") == 1


def apply_as(stage: Stage, manager: str, order: dict[str, Any]) -> None:
    how = ("--server-side", f"--field-manager={manager}", "-f", "-")
    stage.resources.kubectl("apply", *how, stdin=json.dumps(order))


async def test_a_dry_run_writes_nothing_to_redis(stage: Stage) -> None:
    stage.operator()
    order = json.dumps(manifest("order", PAY, SHIP))
    stage.resources.kubectl("apply", "--dry-run=server", "-f", "-", stdin=order)
    stage.resources.kubectl("create", "--dry-run=server", "-f", "-", stdin=order)
    # Objects are reconciled in order: an effect of the dry run would precede this group.
    stage.resources.apply(manifest("another", PAY, SHIP))
    stage.resources.reaches("another", state="ACTIVE")
    uid = stage.resources.get("another")["metadata"]["uid"]
    with Redis.from_url(stage.redis.url, decode_responses=True) as redis:
        groups = redis.zrange(f"{PREFIX}:payments:groups", 0, -1)
    assert groups == [uid]
    assert [each["metadata"]["name"] for each in listed(stage)] == ["another"]


async def test_a_started_operator_writes_nothing_to_ended_objects(stage: Stage) -> None:
    """The objects of ended groups were restored with their status, and Redis is empty."""
    await stage.send("POST", [("", manifest(f"old-{n}", PAY, SHIP)) for n in range(FINISHED)])
    status = {
        "state": "COMPLETED",
        "progress": "2/2",
        "observedGeneration": 1,
        "totalJobs": 2,
        "completedCount": 2,
        "finishedAt": "2026-01-01T00:00:00Z",
    }
    paths = [f"/old-{n}/status" for n in range(FINISHED)]
    await stage.send("PATCH", [(path, {"status": status}) for path in paths])
    before = {each["metadata"]["name"]: each for each in listed(stage)}
    operator = stage.operator()
    await stage.worker()
    stage.resources.apply(manifest("young", PAY, SHIP))
    stage.resources.reaches("young", state="COMPLETED")
    after = {each["metadata"]["name"]: each for each in listed(stage)}
    del after["young"]
    assert after == before
    assert "ERROR" not in operator.log
