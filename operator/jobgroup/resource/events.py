"""What happened to a group since its status was last written -> Kubernetes Events. Pure.

A group has a handful of Events, never one for each job. An Event that is posted twice has the same
name both times, so the API server keeps one; the second message may have newer counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

from jobgroup.model.snapshot import ENDED, GroupState, JobFailure
from jobgroup.resource import reasons
from jobgroup.resource.conditions import Problem, sanitize, to_rfc3339
from jobgroup.resource.decisions import RELEASE_ANNOTATION
from jobgroup.resource.listeners import waiting_jobs_message
from jobgroup.resource.requests import requests_of
from jobgroup.resource.status import CANCELLED, NONE, end_message, failure_message, ready_reason

# The stored reason of a group that failed without a failed job -> the reason of its Event.
_REQUESTS = {
    CANCELLED: reasons.CANCELLED,
    reasons.DEADLINE_EXCEEDED: reasons.DEADLINE_EXCEEDED,
}


@dataclass(frozen=True, slots=True)
class ResourceEvent:
    """One Event, as `kubectl describe` and `kubectl get events` show it."""

    kind: str  # Normal or Warning
    reason: str
    message: str
    # Distinguishes Events of the same object and reason.
    which: str = ""
    # The name of the job that caused it, if one did.
    job: str = ""


def events_since(
    status: Mapping[str, Any],
    group: GroupState,
    names: Mapping[str, str],
    failures: Mapping[str, JobFailure] = NONE,
) -> list[ResourceEvent]:
    """Return the Events of what happened since this status was written."""
    return [*_requests_since(status, group, names), *_changes_since(status, group, names, failures)]


def _requests_since(
    status: Mapping[str, Any], group: GroupState, names: Mapping[str, str]
) -> list[ResourceEvent]:
    """Return the Events of the requests that are not in the history of this status."""
    told = [(each["time"], each["message"]) for each in status.get("events") or ()]
    return [
        ResourceEvent("Normal", each.reason, each.message, f"{each.at} {each.job}", each.job)
        for each in requests_of(group, names)
        if (to_rfc3339(each.at), each.message) not in told
    ]


def _changes_since(
    status: Mapping[str, Any],
    group: GroupState,
    names: Mapping[str, str],
    failures: Mapping[str, JobFailure],
) -> list[ResourceEvent]:
    """Return the Events of the changes of the group itself."""
    before = status.get("state") or ""
    if group.state == "COMPLETED":
        return []
    if before in ENDED and before == group.state:
        counts = status.get("compensation") or {}
        if counts.get("retries", 0) != group.retries:
            return [_event_of_end(group, failures)]  # its retried undos have failed again
        known = (counts.get("total", 0), counts.get("completed", 0), counts.get("failed", 0))
        is_resolved = counts.get("resolved", 0) != group.resolved_count
        if is_resolved or known == (group.undo_count, group.undone_count, group.undo_failed_count):
            return []  # a resolution has an Event of its own
        end = end_message(group, failures)
        late = sanitize(f"a job or undo finished after its group had ended: {end}")
        return [ResourceEvent("Warning", reasons.LATE_CHANGE, late, which=late)]
    events = []
    if group.failed_at is not None and before not in ("COMPENSATING", *ENDED):
        requested = _REQUESTS.get(group.reason, reasons.FAILED)
        reason = reasons.FAILED if group.failed_job_id else requested
        kind = "Normal" if reason == reasons.CANCELLED else "Warning"
        job = names.get(group.failed_job_id, group.failed_job_id)
        events.append(ResourceEvent(kind, reason, failure_message(group, names), job=job))
        if group.was_compensating:
            done = f"{group.completed_count} of {group.total_jobs} jobs had completed"
            events.append(
                ResourceEvent("Normal", reasons.COMPENSATING, f"undoing the completed jobs: {done}")
            )
    if group.ended and group.undo_count:
        events.append(_event_of_end(group, failures))
    return events


def _event_of_end(group: GroupState, failures: Mapping[str, JobFailure]) -> ResourceEvent:
    """Return the Event of the end of a group that was undone; each end has one of its own."""
    which = str(group.attempt) if group.attempt > 1 else ""
    message = end_message(group, failures)
    if group.undo_failed_count:
        return ResourceEvent("Warning", reasons.COMPENSATION_FAILED, message, which)
    return ResourceEvent("Normal", reasons.COMPENSATED, message, which)


def events_of_waiting_jobs(
    status: Mapping[str, Any], waiting: Mapping[str, int]
) -> list[ResourceEvent]:
    """Return the Event of jobs that wait without a worker, unless the status reports some."""
    if not waiting or ready_reason(status) == reasons.NO_WORKER:
        return []
    message, which = sanitize(waiting_jobs_message(waiting)), min(waiting)
    return [ResourceEvent("Warning", reasons.NO_WORKER, message, which)]


def event_of_other_release(other: str, own: str, is_known: bool) -> ResourceEvent:
    """Return the Event of an object that another release claimed; `is_known` if it is alive."""
    if is_known:
        message = (
            f"the release {other} has claimed this JobGroup; the release {own} watches it too, and"
            " leaves it alone: give the releases different namespaces or label selectors"
        )
    else:
        message = (
            f"the release {other} has claimed this JobGroup; the release {own} leaves it alone,"
            f" because it may not read the Lease of {other}: if that release is gone, remove the"
            f" annotation {RELEASE_ANNOTATION}"
        )
    return ResourceEvent("Warning", reasons.CLAIMED_BY_OTHER_RELEASE, message, which=message)


def event_of_refused_status(code: int, refusal: str) -> ResourceEvent:
    """Return the Event of an object whose status the API server refused; one for each HTTP code."""
    message = f"the API server refuses the status, so it is out of date: {refusal}"
    return ResourceEvent("Warning", reasons.STATUS_REFUSED, sanitize(message), which=str(code))


def events_of_problem(status: Mapping[str, Any], problem: Problem) -> list[ResourceEvent]:
    """Return the Event of a problem that needs a person, unless the status reports it already."""
    message = sanitize(problem.message)
    reported = [(each["reason"], each["message"]) for each in status.get("conditions") or ()]
    if not problem.stalled or (problem.reason, message) in reported:
        return []
    return [ResourceEvent("Warning", problem.reason, message, which=message)]


def to_kubernetes_event(event: ResourceEvent, body: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Return the body of a Kubernetes Event about an object."""
    meta = body["metadata"]
    content = "\n".join((meta["uid"], event.reason, event.which))
    name = sha1(content.encode(), usedforsecurity=False).hexdigest()[:16]
    # A part of a name must not end in a hyphen or a dot.
    prefix = meta["name"][:200].rstrip("-.")
    return {
        "metadata": {"name": f"{prefix}.{name}", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "type": event.kind,
        "reason": event.reason,
        "message": event.message,
        "source": {"component": "jobgroup-operator"},
        "reportingComponent": "jobgroup-operator",
        "firstTimestamp": to_rfc3339(now),
        "lastTimestamp": to_rfc3339(now),
        "count": 1,
    }
