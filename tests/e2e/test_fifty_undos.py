"""Fifty undos of 2 to 10 seconds, in pools that grow and shrink: none is killed or run twice.

They come in waves: the second when the first has just ended and the pools still have their pods,
the third when the pods are terminating.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from jobgroup.resource.kinds import JOBGROUP, WORKERPOOL
from testbed.support.workloads import pool
from tests.e2e.stage import Stage

UNDOS = 50
# For each lane of the queue: the workload that runs its undos.
LANES = {"-a": ("Deployment", "node"), "-b": ("StatefulSet", "python")}
PER_LANE = 5  # in one saga
WAVES = [2, 2, 1]  # sagas


def undo(saga: int, lane: str, number: int) -> tuple[str, dict[str, float]]:
    """Return the name of a job, and what its undo does: it takes between 2 and 10 seconds."""
    return f"s{saga}{lane}{number}", {"seconds": 2 + (saga * 3 + number * 2) % 9}


def begin(stage: Stage, saga: int) -> set[str]:
    """Create a saga of ten jobs that succeed and one that fails; return the names of its undos."""
    undos = {lane: dict(undo(saga, lane, number) for number in range(PER_LANE)) for lane in LANES}
    jobs = [stage.job(name, lane=lane) for lane, names in undos.items() for name in names]
    every = {name: does for names in undos.values() for name, does in names.items()}
    breaks = stage.job("break", after=list(every), fails="as it must")
    stage.saga(f"saga-{saga}", *jobs, breaks, undos=every)
    return {f"undo-{name}" for name in every}


def test_none_is_killed_and_none_is_run_twice(stage: Stage) -> None:
    stage.deploy("workers", "node", [stage.queue, *(stage.queue + lane for lane in LANES)], 1)
    for lane, (kind, flavour) in LANES.items():
        queue = f"{stage.queue}{lane}:compensation"
        stage.deploy(flavour, flavour, [queue], kind=kind)
        bounds: dict[str, Any] = {"maxReplicas": 5, "jobsPerReplica": 2, "cooldownSeconds": 2}
        target = {"kind": kind, "name": flavour}
        stage.user.create(pool(flavour, queue, scaleTargetRef=target, **bounds))

    # A change that does not concern the pool has no effect on it.
    for _, flavour in LANES.values():
        stage.user.wait_for(WORKERPOOL.name, flavour, is_observed)
        stage.user.patch(WORKERPOOL.name, flavour, {"metadata": {"labels": {"seen": "yes"}}})

    begun = 0
    undos: set[str] = set()
    for wave, sagas in enumerate(WAVES):
        if wave == 2:
            pools_sleep(stage)
        for saga in range(begun, begun + sagas):
            undos |= begin(stage, saga)
        for saga in range(begun, begun + sagas):
            stage.sees(f"saga-{saga}", state="FAILED", undone="10/10")
        begun += sagas

    assert len(undos) == UNDOS
    trail = Counter(line for line in stage.trail() if " undo-" in line)
    assert trail == {f"{what} {name}": 1 for name in undos for what in ("began", "ended")}
    assert attempts(stage) == [1] * UNDOS
    pools_sleep(stage)
    for _, flavour in LANES.values():
        stage.user.wait_gone("Pod", label_selector=f"app={flavour}")


def pools_sleep(stage: Stage) -> None:
    """Wait until no pod is wanted; some may still be terminating."""
    for kind, flavour in LANES.values():
        stage.sleeps(kind, flavour)


def is_observed(body: Mapping[str, Any]) -> bool:
    """Return whether the operator has seen the newest spec of an object."""
    status = body.get("status") or {}
    return bool(status.get("observedGeneration") == body["metadata"]["generation"])


def attempts(stage: Stage) -> list[int]:
    """Return how often each undo was started, as BullMQ counts it."""
    counts = [
        stage.operator.redis_many(
            [
                ["HGET", f"bull:{job['queueName']}:compensation:{job['jobId']}-undo", "ats"]
                for job in saga["status"]["jobs"]
                if job.get("undo")
            ]
        )
        for saga in stage.user.find(JOBGROUP.name)
    ]
    return [int(each) for replies in counts for each in replies]
