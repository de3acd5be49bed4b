"""A workload that a pool scales: its replicas, and whether it may be scaled. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The annotation by which a workload allows or refuses to be scaled by a pool.
SCALABLE_ANNOTATION = "jobgroups.dev/scalable"
# The replicas of a workload are an int32 in the Kubernetes API.
MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Workload:
    """A scale target as read from the API server."""

    path: str
    version: str
    replicas: int
    # None if the workload reports something else than a number.
    ready: int | None


def read_workload(path: str, found: Mapping[str, Any]) -> Workload | None:
    """Return the replicas of a workload, or None if it has none that a pool can scale.

    They are read from the workload itself: its scale subresource does not contain the ready ones.
    """
    replicas = _count(found.get("spec"), "replicas", None)
    if replicas is None:
        return None
    ready = _count(found.get("status"), "readyReplicas", 0)
    return Workload(path, found["metadata"]["resourceVersion"], replicas, ready)


def _count(part: object, field: str, default: int | None) -> int | None:
    """Return a number of replicas; None if it is something else, as a custom kind may have."""
    value = part.get(field, default) if isinstance(part, Mapping) else default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_INT32:
        return None
    return value


def scaling_refusal(annotations: Mapping[str, str], opt_in: bool) -> str:
    """Return why a workload must not be scaled, or an empty text.

    With `opt_in`, only workloads with the annotation may be scaled. Any value but "true" refuses.
    """
    value = annotations.get(SCALABLE_ANNOTATION)
    if value is None and opt_in:
        return f'the operator requires the annotation {SCALABLE_ANNOTATION}: "true" to scale it'
    if value is not None and value != "true":
        return f'its annotation {SCALABLE_ANNOTATION} is "{value}", not "true"'
    return ""
