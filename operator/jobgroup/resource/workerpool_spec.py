"""The spec of a WorkerPool as a model, for the CRD and the operator. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from jobgroup.definition.options import Model
from jobgroup.definition.spec import MAX_UNDO_QUEUE, UNDO_QUEUE
from jobgroup.model.names import undo_queue
from jobgroup.resource.replicas import Bounds

MAX_REPLICAS = 10_000
MAX_COOLDOWN = 24 * 3600

Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
# The fields of a target become parts of a request's path, so the patterns exclude slashes and dots
# that would change the path.
_VERSION = "^([a-z0-9][a-z0-9.-]*/)?v[0-9][a-z0-9]*$"
_KIND = "^[A-Za-z][A-Za-z0-9]*$"
_NAME = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"


class ScaleTarget(Model):
    """The workload whose pods are workers of the queue."""

    apiVersion: Annotated[str, Field(min_length=1, max_length=127)] = Field(  # noqa: N815
        default="apps/v1",
        description="The API version of the workload.",
        json_schema_extra={"pattern": _VERSION},
    )
    kind: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        default="Deployment",
        description="Deployment, StatefulSet, or another kind with a scale subresource and"
        " spec.replicas that the operator has RBAC rules for.",
        json_schema_extra={"pattern": _KIND},
    )
    name: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="The name of the workload, in the namespace of the pool.",
        json_schema_extra={"pattern": _NAME},
    )


class WorkerPoolSpec(Model):
    """The desired scaling: as many workers as the jobs of a queue need."""

    queueName: Annotated[str, Field(min_length=1, max_length=MAX_UNDO_QUEUE)] = Field(  # noqa: N815
        description="The queue whose jobs are counted, usually a queue of undos, such as"
        f" {undo_queue('<queue>')}. Immutable.",
        json_schema_extra={"pattern": UNDO_QUEUE},
    )
    scaleTargetRef: ScaleTarget = Field(  # noqa: N815
        description="The workload to scale. Immutable."
    )
    minReplicas: Replicas = Field(  # noqa: N815
        default=0, description="The minimum number of replicas, also while the queue is empty."
    )
    maxReplicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(  # noqa: N815
        default=10,
        description="The maximum number of replicas. The operator may have a lower limit for all"
        " pools.",
    )
    jobsPerReplica: Annotated[int, Field(ge=1, le=1_000_000)] = Field(  # noqa: N815
        default=5,
        description="The number of jobs for each replica. Use the concurrency of the worker.",
    )
    cooldownSeconds: Annotated[int, Field(ge=0, le=MAX_COOLDOWN)] = Field(  # noqa: N815
        default=60,
        description="Seconds without activity in the queue before the workload is scaled down."
        " Delayed jobs that are due within this time count as waiting.",
    )
    paused: bool = Field(
        default=False, description="Set to true to count jobs without scaling the workload."
    )


def bounds_of(spec: Mapping[str, Any], ceiling: int | None = None) -> Bounds:
    """Return the bounds of a spec that the API server has validated and defaulted.

    `ceiling` is the maximum number of replicas that the operator allows for any pool.
    """
    return Bounds(
        minimum=spec["minReplicas"],
        maximum=spec["maxReplicas"],
        jobs_per_replica=spec["jobsPerReplica"],
        cooldown_seconds=spec["cooldownSeconds"],
        paused=spec["paused"],
        ceiling=ceiling,
    )
