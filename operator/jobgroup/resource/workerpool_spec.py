"""The WorkerPool resource: its spec and status as models, for CRD and operator. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from jobgroup.options import Count, Model
from jobgroup.replicas import Bounds
from jobgroup.resource_status import MAX_CONDITIONS, Condition, Text, Time

KIND = "WorkerPool"
PLURAL = "workerpools"
MAX_REPLICAS = 10_000
MAX_COOLDOWN = 24 * 3600

Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
# A target's parts go into the path of a request: none may hold what leads elsewhere.
_VERSION = "^([a-z0-9][a-z0-9.-]*/)?v[0-9][a-z0-9]*$"
_KIND = "^[A-Za-z][A-Za-z0-9]*$"
_NAME = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"


class ScaleTarget(Model):
    """The workload whose replicas are the workers of the queue."""

    apiVersion: Annotated[str, Field(min_length=1, max_length=127)] = Field(  # noqa: N815
        default="apps/v1",
        description="The API version of the workload.",
        json_schema_extra={"pattern": _VERSION},
    )
    kind: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        default="Deployment",
        description="Deployment or StatefulSet; another kind that can be scaled and has"
        " spec.replicas, if the operator is granted it.",
        json_schema_extra={"pattern": _KIND},
    )
    name: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="The name of the workload, in the pool's own namespace.",
        json_schema_extra={"pattern": _NAME},
    )


class WorkerPoolSpec(Model):
    """What is wanted: workers of a queue, as many as its jobs need."""

    queueName: Annotated[str, Field(min_length=1, max_length=76)] = Field(  # noqa: N815
        description="The queue whose jobs count, above all <queue>:compensation, where undos go."
        " It cannot be changed.",
        json_schema_extra={"pattern": "^[A-Za-z0-9._-]{1,63}(:compensation)?$"},
    )
    scaleTargetRef: ScaleTarget = Field(  # noqa: N815
        description="The workload that is scaled. It cannot be changed."
    )
    minReplicas: Replicas = Field(  # noqa: N815
        default=0, description="Replicas that stay when there is nothing to do."
    )
    maxReplicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(  # noqa: N815
        default=10, description="Replicas that are never exceeded."
    )
    jobsPerReplica: Annotated[int, Field(ge=1, le=1_000_000)] = Field(  # noqa: N815
        default=5,
        description="Jobs that one replica is to have; a worker's concurrency is a good number.",
    )
    cooldownSeconds: Annotated[int, Field(ge=0, le=MAX_COOLDOWN)] = Field(  # noqa: N815
        default=60,
        description="Seconds for which fewer replicas must have been enough, and the queue quiet,"
        " before there are fewer. Delayed jobs that are due within them count as waiting.",
    )
    paused: bool = Field(
        default=False, description="Set to true to leave the workload as it is, and only count."
    )


class BacklogCounts(Model):
    """The jobs of the queue."""

    waiting: Count | None = Field(default=None, description="Jobs that wait for a worker.")
    prioritized: Count | None = Field(default=None, description="Jobs that wait with a priority.")
    active: Count | None = Field(default=None, description="Jobs that workers have.")
    delayed: Count | None = Field(default=None, description="Jobs whose time has not come yet.")


class LastScale(Model):
    """The last time the pool scaled its workload."""

    time: Time | None = Field(default=None, description="When it was.")
    fromReplicas: Replicas | None = Field(default=None, description="Replicas before.")  # noqa: N815
    toReplicas: Replicas | None = Field(default=None, description="Replicas asked for.")  # noqa: N815
    reason: Text | None = Field(default=None, description="Why, in a sentence.")


class WorkerPoolStatus(Model):
    """What is known: written by the operator, and only when it changed."""

    observedGeneration: Annotated[int, Field(ge=-1)] = Field(  # noqa: N815
        default=-1,
        description="The metadata.generation this status is about; -1 until it was looked at.",
    )
    desiredReplicas: Replicas | None = Field(  # noqa: N815
        default=None, description="Replicas that the queue's jobs need, within the bounds."
    )
    replicas: Replicas | None = Field(default=None, description="Replicas the workload is to have.")
    readyReplicas: Replicas | None = Field(  # noqa: N815
        default=None, description="Replicas of the workload that are ready."
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
        description="Ready and Stalled for programs; ScalingActive says whether the pool scales.",
    )


def bounds_of(spec: Mapping[str, Any]) -> Bounds:
    """Take from a spec, which the API server has checked and completed, what decides."""
    return Bounds(
        minimum=spec["minReplicas"],
        maximum=spec["maxReplicas"],
        jobs_per_replica=spec["jobsPerReplica"],
        cooldown_seconds=spec["cooldownSeconds"],
        paused=spec["paused"],
    )
