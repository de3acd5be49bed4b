"""The schema of a WorkerPool's status, the status itself, and the Event of a scaling. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from jobgroup.definition.options import Count, Model
from jobgroup.model.backlog import Backlog
from jobgroup.resource import reasons
from jobgroup.resource.conditions import Problem, condition, to_rfc3339, with_transition_time
from jobgroup.resource.events import ResourceEvent
from jobgroup.resource.jobgroup_status import MAX_CONDITIONS, Condition, Text, Time
from jobgroup.resource.replicas import Decision
from jobgroup.resource.workload import MAX_INT32, Workload

_OF_WORKLOAD = {"desiredReplicas", "replicas", "readyReplicas"}
# Problems of a workload that does not exist, or that the pool must not scale.
_WITHOUT_WORKLOAD = {reasons.CONFLICT, reasons.TARGET_MISSING, reasons.NOT_SCALABLE}

# A workload may have more replicas than a pool may request.
Replicas = Annotated[int, Field(ge=0, le=MAX_INT32)]


class BacklogCounts(Model):
    """The jobs of the queue by state."""

    waiting: Count | None = Field(default=None, description="Jobs that wait for a worker.")
    prioritized: Count | None = Field(default=None, description="Jobs that wait with a priority.")
    active: Count | None = Field(default=None, description="Jobs that workers process.")
    delayed: Count | None = Field(default=None, description="Jobs that are not due yet.")


class LastScale(Model):
    """The last time the pool scaled its workload."""

    time: Time | None = Field(default=None, description="When the workload was scaled.")
    fromReplicas: Replicas | None = Field(default=None, description="Replicas before.")  # noqa: N815
    toReplicas: Replicas | None = Field(default=None, description="Replicas after.")  # noqa: N815
    reason: Text | None = Field(default=None, description="The reason, in a sentence.")


class WorkerPoolStatus(Model):
    """The observed state of the pool, written by the operator."""

    observedGeneration: Annotated[int, Field(ge=-1)] = Field(  # noqa: N815
        default=-1,
        description="The metadata.generation of this status; -1 before the first reconcile.",
    )
    desiredReplicas: Replicas | None = Field(  # noqa: N815
        default=None,
        description="Replicas that the jobs need, between minReplicas and maxReplicas, and at most"
        " as many as the operator allows.",
    )
    replicas: Replicas | None = Field(
        default=None, description="Replicas in the spec of the workload."
    )
    readyReplicas: Replicas | None = Field(  # noqa: N815
        default=None,
        description="Replicas of the workload that are ready, if it reports a number.",
    )
    backlog: Count | None = Field(
        default=None, description="Jobs that need a worker now or within the cooldown."
    )
    jobs: BacklogCounts | None = Field(default=None, description="The jobs of the queue by state.")
    lastScale: LastScale | None = Field(  # noqa: N815
        default=None, description="The last time the pool scaled its workload."
    )
    conditions: Annotated[tuple[Condition, ...], Field(max_length=MAX_CONDITIONS)] | None = Field(
        default=None,
        description="Ready and Stalled are for programs; ScalingActive is whether the pool scales.",
    )


@dataclass(frozen=True, slots=True)
class Scaling:
    """One change of a workload's replicas."""

    before: int
    after: int
    reason: str
    # The resourceVersion of the workload before the change.
    version: str

    @property
    def event(self) -> ResourceEvent:
        message = f"from {self.before} to {self.after}: {self.reason}"
        return ResourceEvent("Normal", reasons.SCALED, message, which=self.version)


def pool_status(
    body: Mapping[str, Any],
    now: int,
    backlog: Backlog | None = None,
    workload: Workload | None = None,
    decision: Decision | None = None,
    scaling: Scaling | None = None,
    problem: Problem | None = None,
) -> dict[str, Any]:
    """Return the whole status; fields that are not known this time keep their value."""
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
    if problem and problem.reason in _WITHOUT_WORKLOAD:
        status = {name: value for name, value in status.items() if name not in _OF_WORKLOAD}
    if workload:
        status["replicas"] = workload.replicas
        status.pop("readyReplicas", None)
        if workload.ready is not None:
            status["readyReplicas"] = workload.ready
    if decision:
        status["desiredReplicas"] = decision.replicas
    if scaling:
        status["replicas"] = scaling.after
        status["lastScale"] = {
            "time": to_rfc3339(now),
            "fromReplicas": scaling.before,
            "toReplicas": scaling.after,
            "reason": scaling.reason,
        }
    status["conditions"] = [
        with_transition_time(each, previous.get("conditions") or (), generation, now)
        for each in _conditions(body, backlog, decision, problem)
    ]
    return status


def _conditions(
    body: Mapping[str, Any],
    backlog: Backlog | None,
    decision: Decision | None,
    problem: Problem | None,
) -> list[dict[str, str]]:
    if problem:
        reason, message = problem.reason, problem.message
        stalled = [condition("Stalled", True, reason, message)] if problem.stalled else []
        return [
            condition("Ready", False, reason, message),
            *stalled,
            condition("ScalingActive", False, reason, message),
        ]
    paused = bool(body["spec"].get("paused"))
    reason = reasons.PAUSED if paused else reasons.COUNTING
    message = decision.reason if decision else ""
    if backlog and not backlog.known:
        # The queue may be new, or its name misspelled: a warning, not an error.
        reason = reason if paused else reasons.QUEUE_NEVER_SEEN
        message = (
            f'the queue "{body["spec"]["queueName"]}" is not in Redis yet; check spec.queueName'
        )
        if decision and decision.is_capped:
            message = f"{message}; {decision.reason}"
    return [
        condition("Ready", True, reason, message),
        condition("ScalingActive", not paused, reason, message),
    ]


def differs_beyond_counts(status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether two statuses differ in more than counts, which are written less often."""
    return _without_counts(status) != _without_counts(before)


def _without_counts(status: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in status.items() if name not in {"backlog", "jobs"}}
    kept["conditions"] = [
        (each["type"], each["status"], each["reason"]) for each in status.get("conditions") or ()
    ]
    return kept
