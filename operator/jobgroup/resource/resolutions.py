"""The resolved undos in a spec, and the jobs -> what to resolve now. Pure.

An undo is resolved once it failed or waits. The first resolution that Redis accepted holds, whoever
gave it, so later changes of the spec have no effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobgroup.definition.requests import MAX_BY, MAX_REASON
from jobgroup.model.names import job_id
from jobgroup.model.snapshot import GroupJob, GroupState
from jobgroup.resource.conditions import sanitize

_STATES = ("COMPENSATING", "FAILED_COMPENSATION")


@dataclass(frozen=True, slots=True)
class Resolution:
    """Why an undo is resolved, and who says so; `by` is empty for the JobGroup itself."""

    reason: str
    by: str


def standing_resolutions(body: Mapping[str, Any]) -> dict[str, Resolution]:
    """Return the resolutions of an object by job id."""
    spec = body.get("spec") or {}
    given = spec.get("resolved")
    if not given:
        return {}
    names = [job["name"] for job in spec.get("jobs") or ()]
    uid = body["metadata"]["uid"]
    return {
        job_id(uid, n): Resolution(
            sanitize(given[name]["reason"], MAX_REASON),
            sanitize(given[name].get("by") or "", MAX_BY),
        )
        for n, name in enumerate(names)
        if name in given
    }


def due_resolutions(
    resolutions: Mapping[str, Resolution], group: GroupState | None, jobs: Sequence[GroupJob]
) -> dict[str, Resolution]:
    """Return the resolutions of undos that failed or wait, by job id."""
    if not resolutions or group is None or group.state not in _STATES:
        return {}
    unresolved = [job.job_id for job in jobs if job.undo in ("failed", "pending")]
    return {its_id: resolutions[its_id] for its_id in unresolved if its_id in resolutions}


def are_awaited(
    resolutions: Mapping[str, Resolution], group: GroupState | None, jobs: Sequence[GroupJob]
) -> bool:
    """Return whether a resolution is due, or is about an undo that may still be added."""
    if due_resolutions(resolutions, group, jobs):
        return True
    if not resolutions or group is None or group.state != "COMPENSATING":
        return False
    return any(
        job.job_id in resolutions and not job.undo and job.status in ("active", "completed")
        for job in jobs
    )
