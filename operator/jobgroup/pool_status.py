"""What is known of a pool -> the `.status` of its resource, and the Event of a scaling. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobgroup.news import News
from jobgroup.replicas import Backlog, Decision
from jobgroup.status import Trouble, condition, dated, seconds


@dataclass(frozen=True, slots=True)
class Workload:
    """A scale target as the API server has it."""

    path: str
    version: str
    replicas: int
    ready: int


@dataclass(frozen=True, slots=True)
class Scaling:
    """One change of a workload's replicas."""

    before: int
    after: int
    reason: str

    @property
    def news(self) -> News:
        return News("Normal", "Scaled", f"from {self.before} to {self.after}: {self.reason}")


def pool_status(
    body: Mapping[str, Any],
    now: int,
    backlog: Backlog | None = None,
    workload: Workload | None = None,
    decision: Decision | None = None,
    scaling: Scaling | None = None,
    trouble: Trouble | None = None,
) -> dict[str, Any]:
    """Return the whole status; what could not be found out this time stays as it was."""
    previous = body.get("status") or {}
    generation = body["metadata"]["generation"]
    status = {**previous, "observedGeneration": generation}
    if backlog:
        status["backlog"] = backlog.demand
        status["jobs"] = {
            "waiting": backlog.waiting,
            "prioritized": backlog.prioritized,
            "active": backlog.active,
            "delayed": backlog.delayed,
        }
    if workload:
        status |= {"replicas": workload.replicas, "readyReplicas": workload.ready}
    if decision:
        status["desiredReplicas"] = decision.replicas
    if scaling:
        status["replicas"] = scaling.after
        status["lastScale"] = {
            "time": seconds(now),
            "fromReplicas": scaling.before,
            "toReplicas": scaling.after,
            "reason": scaling.reason,
        }
    status["conditions"] = [
        dated(each, previous.get("conditions") or (), generation, now)
        for each in _conditions(body, backlog, decision, trouble)
    ]
    return status


def _conditions(
    body: Mapping[str, Any],
    backlog: Backlog | None,
    decision: Decision | None,
    trouble: Trouble | None,
) -> list[dict[str, str]]:
    if trouble:
        said = (trouble.reason, trouble.message)
        stalled = [condition("Stalled", True, *said)] if trouble.stalled else []
        return [
            condition("Ready", False, *said),
            *stalled,
            condition("ScalingActive", False, *said),
        ]
    paused = bool(body["spec"].get("paused"))
    message = decision.reason if decision else ""
    if backlog and not backlog.known:
        message = f'the queue "{body["spec"]["queueName"]}" has never been seen'
    reason = "Paused" if paused else "Counting"
    return [
        condition("Ready", True, reason, message),
        condition("ScalingActive", not paused, reason, message),
    ]
