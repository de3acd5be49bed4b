"""What is known of a pool -> the `.status` of its resource, and the Event of a scaling. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobgroup.conditions import Trouble, condition, dated, seconds
from jobgroup.news import News
from jobgroup.replicas import Backlog, Decision

CONFLICT = "Conflict"
TARGET_MISSING = "TargetMissing"
TARGET_REFUSED = "TargetRefused"
_OF_WORKLOAD = {"desiredReplicas", "replicas", "readyReplicas"}


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
    # The workload's, before.
    version: str

    @property
    def news(self) -> News:
        message = f"from {self.before} to {self.after}: {self.reason}"
        return News("Normal", "Scaled", message, which=self.version)


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
    if trouble and trouble.reason in {CONFLICT, TARGET_MISSING}:
        # There is none, or it is another pool's to tell of.
        status = {name: value for name, value in status.items() if name not in _OF_WORKLOAD}
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
    reason = "Paused" if paused else "Counting"
    message = decision.reason if decision else ""
    if backlog and not backlog.known:
        # It may be new, or its name mistyped: worth a warning, but no error.
        reason = reason if paused else "QueueNeverSeen"
        message = f'the queue "{body["spec"]["queueName"]}" has never been seen'
    return [
        condition("Ready", True, reason, message),
        condition("ScalingActive", not paused, reason, message),
    ]


def tells_more(status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Say whether a status has more news than counts, which are written less often."""
    return _without_counts(status) != _without_counts(before)


def _without_counts(status: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in status.items() if name not in {"backlog", "jobs"}}
    kept["conditions"] = [
        (each["type"], each["status"], each["reason"]) for each in status.get("conditions") or ()
    ]
    return kept
