"""The models of the WorkerPool resource -> its CRD. Pure."""

from typing import Any

from jobgroup.crd import RULES, definition, root, status_of
from jobgroup.pool import KIND, PLURAL, WorkerPoolSpec, WorkerPoolStatus
from jobgroup.structural import Schema, structural

_COLUMNS = (
    ("Queue", ".spec.queueName", "string", 0),
    ("Backlog", ".status.backlog", "integer", 0),
    ("Active", ".status.jobs.active", "integer", 0),
    ("Replicas", ".status.replicas", "integer", 0),
    ("Ready", ".status.readyReplicas", "integer", 0),
    ("Target", ".spec.scaleTargetRef.name", "string", 1),
    ("Reason", ".status.lastScale.reason", "string", 1),
    ("Age", ".metadata.creationTimestamp", "date", 0),
)

_SPEC_RULES = [
    {
        "rule": "self.minReplicas <= self.maxReplicas",
        "message": "minReplicas cannot be greater than maxReplicas",
        "fieldPath": ".minReplicas",
    },
    {
        "rule": "self.queueName == oldSelf.queueName",
        "message": "queueName cannot be changed: make a new WorkerPool",
        "fieldPath": ".queueName",
    },
    {
        "rule": "self.scaleTargetRef == oldSelf.scaleTargetRef",
        "message": "scaleTargetRef cannot be changed: make a new WorkerPool",
        "fieldPath": ".scaleTargetRef",
    },
    {
        "rule": "self.queueName != '_jobgroups'",
        "message": 'the queue "_jobgroups" is reserved',
        "fieldPath": ".queueName",
    },
]


def workerpool_crd() -> dict[str, Any]:
    """Return the definition of WorkerPools."""
    said = (
        "A WorkerPool scales the workers of a queue with its jobs: up at once, down only when the"
        " queue is quiet."
    )
    schema = root(KIND, said, _spec(), status_of(WorkerPoolStatus))
    return definition(KIND, PLURAL, "wp", {"schema": {"openAPIV3Schema": schema}}, _COLUMNS)


def _spec() -> Schema:
    spec = structural(WorkerPoolSpec)
    spec["properties"]["scaleTargetRef"]["x-kubernetes-map-type"] = "atomic"
    return {**spec, RULES: _SPEC_RULES}
