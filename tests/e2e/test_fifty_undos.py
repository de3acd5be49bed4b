"""Fifty undos of 2 to 10 seconds, in pools that grow and shrink: none is killed or run twice.

They come in waves: the second when the first has just ended and the pools still have their pods,
the third when the pods are on their way out.
"""

from collections import Counter
from typing import Any

from testbed.workloads import pool
from tests.e2e.stage import Stage

UNDOS = 50
# A queue each, and who undoes its jobs.
LANES = {"-a": ("Deployment", "node"), "-b": ("StatefulSet", "python")}
PER_LANE = 5  # in one saga
WAVES = [2, 2, 1]  # sagas


def undo(saga: int, lane: str, number: int) -> tuple[str, dict[str, float]]:
    """Name a job, and say what its undo does: each takes another time, from 2 to 10 seconds."""
    return f"s{saga}{lane}{number}", {"seconds": 2 + (saga * 3 + number * 2) % 9}


def begin(stage: Stage, saga: int) -> set[str]:
    """Apply a saga of ten jobs that succeed and one that fails; return the names of its undos."""
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
        stage.kubectl.apply(pool(flavour, queue, scaleTargetRef=target, **bounds))

    # That somebody changes what is none of its business does not confuse a pool.
    for _, flavour in LANES.values():
        stage.kubectl.wait(f"workerpool/{flavour}", ".status.observedGeneration", 1)
    stage.kubectl("label", "workerpools", "--all", "seen=yes")

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
        stage.kubectl.wait_gone("pods", f"--selector=app={flavour}")


def pools_sleep(stage: Stage) -> None:
    """Wait until no pod is wanted; some may still be on their way out."""
    for kind, flavour in LANES.values():
        stage.kubectl.wait(f"{kind}/{flavour}", ".spec.replicas", 0)


def attempts(stage: Stage) -> list[int]:
    """Return how often BullMQ itself says that each undo was started."""
    told = [
        stage.operator.redis_many(
            [
                ["HGET", f"bull:{job['queueName']}:compensation:{job['jobId']}-undo", "ats"]
                for job in saga["status"]["jobs"]
                if job.get("undo")
            ]
        )
        for saga in stage.kubectl.json("jobgroups")["items"]
    ]
    return [int(each) for answers in told for each in answers]
