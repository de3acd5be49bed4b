"""The models of the WorkerPool resource -> its CRD. Pure."""

from typing import Any

from jobgroup.crd.custom_resource import (
    MESSAGE_COLUMN,
    REASON_COLUMN,
    RULES,
    build_crd,
    object_schema,
    status_schema,
)
from jobgroup.crd.structural import Schema, structural
from jobgroup.model.names import LEDGER_QUEUE
from jobgroup.resource.kinds import WORKERPOOL
from jobgroup.resource.workerpool_spec import WorkerPoolSpec
from jobgroup.resource.workerpool_status import WorkerPoolStatus

_COLUMNS = (
    ("Queue", ".spec.queueName", "string", 0),
    ("Backlog", ".status.backlog", "integer", 0),
    ("Active", ".status.jobs.active", "integer", 0),
    ("Replicas", ".status.replicas", "integer", 0),
    ("Ready", ".status.readyReplicas", "integer", 0),
    REASON_COLUMN,
    ("Age", ".metadata.creationTimestamp", "date", 0),
    ("Target", ".spec.scaleTargetRef.name", "string", 1),
    ("Last Scale", ".status.lastScale.reason", "string", 1),
    MESSAGE_COLUMN,
)

_SPEC_RULES = [
    {
        "rule": "self.minReplicas <= self.maxReplicas",
        "message": "minReplicas cannot be greater than maxReplicas",
        "fieldPath": ".minReplicas",
    },
    {
        "rule": "self.queueName == oldSelf.queueName",
        "message": "queueName cannot be changed: create a new WorkerPool",
        "fieldPath": ".queueName",
    },
    {
        "rule": "self.scaleTargetRef == oldSelf.scaleTargetRef",
        "message": "scaleTargetRef cannot be changed: create a new WorkerPool",
        "fieldPath": ".scaleTargetRef",
    },
    {
        "rule": f"self.queueName != '{LEDGER_QUEUE}'",
        "message": f'the queue "{LEDGER_QUEUE}" is reserved',
        "fieldPath": ".queueName",
    },
]


def workerpool_crd() -> dict[str, Any]:
    """Return the CRD of WorkerPools."""
    description = (
        "A WorkerPool scales a workload with the jobs of one queue: up at once, down only after the"
        " queue was quiet."
    )
    schema = object_schema(WORKERPOOL, description, _spec(), status_schema(WorkerPoolStatus))
    return build_crd(WORKERPOOL, {"schema": {"openAPIV3Schema": schema}}, _COLUMNS)


def _spec() -> Schema:
    spec = structural(WorkerPoolSpec)
    spec["properties"]["scaleTargetRef"]["x-kubernetes-map-type"] = "atomic"
    return {**spec, RULES: _SPEC_RULES}
