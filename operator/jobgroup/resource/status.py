"""A group as read from Redis -> the `.status` of its JobGroup. Pure.

The status never contains the data or the return value of a job: users who may read the resource
need not be allowed to read those.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobgroup.model.snapshot import ENDED, GroupJob, GroupState
from jobgroup.resource import reasons
from jobgroup.resource.conditions import (
    Problem,
    condition,
    sanitize,
    to_rfc3339,
    with_transition_time,
)

MAX_LINES = 100
# Each write of a status stores the whole object again, so a status is kept below 64 KB.
MAX_LINES_BYTES = 40_000
PENDING = "PENDING"

# The stored reason of a group that was cancelled.
CANCELLED = "cancelled"
# The stored reason of a group that failed without a failed job -> its sentence.
_REQUESTS = {
    CANCELLED: "a cancellation was requested",
    reasons.DEADLINE_EXCEEDED: "spec.activeDeadlineSeconds passed",
}

# The order of the jobs: failed ones first, then those that need attention.
_RANKS = {"failed": 0, "active": 1, "pending": 3, "completed": 4, "cancelled": 5}
_UNDO_RANKS = {"failed": 0, "pending": 2}


def derive_status(
    generation: int,
    previous: Mapping[str, Any],
    now: int,
    group: GroupState | None = None,
    jobs: Sequence[GroupJob] = (),
    names: Mapping[str, str] | None = None,
    problem: Problem | None = None,
    remark: str = "",
) -> dict[str, Any]:
    """Return the whole status; `names` are job names by id, `previous` is the current status.

    Without a group the state stays as it was, or is PENDING. A terminal status does not change if
    Redis is unavailable or has lost the group. Without a problem, `remark` is appended to the
    message of the conditions.
    """
    if group is None and previous.get("state") in ENDED:
        if problem is None:
            return _with_observed_generation(generation, previous)
        if not problem.stalled:
            return dict(previous)
    fields = _group_fields(group, jobs, names or {}) if group else {**_initial_fields(), **previous}
    status = {**fields, "observedGeneration": generation}
    if group is None and status["state"] in ENDED:
        status.setdefault("finishedAt", to_rfc3339(now))
    wanted = _conditions(status, group, problem, remark)
    status["conditions"] = [
        with_transition_time(each, previous.get("conditions") or (), generation, now)
        for each in wanted
    ]
    return status


def skipped_state(before: str, group: GroupState) -> GroupState | None:
    """Return the group as it was while COMPENSATING, if its status never showed that state.

    Clients that wait for COMPENSATING must see it, even if all undos completed within a moment.
    """
    if not group.ended or not group.was_compensating or before in ("COMPENSATING", *ENDED):
        return None
    return replace(
        group, state="COMPENSATING", finished_at=None, undone_count=0, undo_failed_count=0
    )


def _with_observed_generation(generation: int, previous: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same status for a new generation of the object."""
    seen = {"observedGeneration": generation}
    conditions = [{**each, **seen} for each in previous.get("conditions") or ()]
    return {**previous, **seen, "conditions": conditions}


def _initial_fields() -> dict[str, Any]:
    return {"state": PENDING, "progress": ""}


def _group_fields(
    group: GroupState, jobs: Sequence[GroupJob], names: Mapping[str, str]
) -> dict[str, Any]:
    lines = _lines(jobs, names)
    status: dict[str, Any] = {
        "groupId": group.id,
        "state": group.state,
        "progress": f"{group.completed_count}/{group.total_jobs}",
        "totalJobs": group.total_jobs,
        "completedCount": group.completed_count,
        "failedCount": group.failed_count,
        "cancelledCount": group.cancelled_count,
        "jobs": lines,
        "events": _events(group, names),
        "startedAt": to_rfc3339(group.created_at),
    }
    if len(jobs) > len(lines):
        status["jobsOmitted"] = len(jobs) - len(lines)
    if group.undo_count:
        status["undone"] = f"{group.undone_count}/{group.undo_count}"
        status["compensation"] = {
            "total": group.undo_count,
            "completed": group.undone_count,
            "failed": group.undo_failed_count,
        }
    if group.failed_job_id:
        status["failure"] = {
            "jobName": names.get(group.failed_job_id, ""),
            "jobId": group.failed_job_id,
            "reason": sanitize(group.reason),
            "attemptsMade": group.failed_attempts,
        }
    elif group.failed_at is not None:
        status["failure"] = {"reason": sanitize(group.reason)}
    if group.finished_at is not None:
        status["finishedAt"] = to_rfc3339(group.finished_at)
    return status


def _lines(jobs: Sequence[GroupJob], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one entry for each job, in the order of _RANKS, as many as fit."""
    lines: list[dict[str, Any]] = []
    room = MAX_LINES_BYTES
    for job in sorted(jobs, key=_rank)[:MAX_LINES]:
        line = _line(job, names)
        room -= len(json.dumps(line)) + 2
        if room < 0:
            break
        lines.append(line)
    return lines


def _rank(job: GroupJob) -> int:
    return min(_RANKS[job.status], _UNDO_RANKS.get(job.undo, 9))


def _line(job: GroupJob, names: Mapping[str, str]) -> dict[str, Any]:
    line = {
        "name": names.get(job.job_id, ""),
        "queueName": job.queue_name,
        "jobId": job.job_id,
        "status": job.status,
    }
    return {**line, "undo": job.undo} if job.undo else line


def _events(group: GroupState, names: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the history of a group; each type occurs at most once."""
    events = [(group.created_at, "Created", f"{group.total_jobs} jobs created")]
    if group.failed_at is not None:
        events.append((group.failed_at, "Failing", failure_message(group, names)))
    if group.finished_at is not None:
        events.append((group.finished_at, "Ended", end_message(group)))
    return [
        {"time": to_rfc3339(time), "type": kind, "message": message}
        for time, kind, message in events
    ]


def failure_message(group: GroupState, names: Mapping[str, str]) -> str:
    """Return in one line why a group failed or was cancelled."""
    if not group.failed_job_id:
        return _REQUESTS.get(group.reason) or sanitize(group.reason)
    name = names.get(group.failed_job_id, group.failed_job_id)
    return sanitize(f'job "{name}" failed: {group.reason}')


def end_message(group: GroupState) -> str:
    """Return in one line how a group ended."""
    if group.state == "COMPLETED":
        return f"all {group.total_jobs} jobs completed"
    if not group.undo_count:
        return "failed, nothing had to be undone"
    undone = f"{group.undone_count} of {group.undo_count} undone"
    failed = group.undo_failed_count
    return f"failed, {undone}" + (f", {failed} could not be undone" if failed else "")


def _conditions(
    status: Mapping[str, Any], group: GroupState | None, problem: Problem | None, remark: str
) -> list[dict[str, str]]:
    """Return the conditions: for kstatus, and for people who use `kubectl wait`."""
    state = status["state"]
    if problem:
        reason, message = problem.reason, problem.message
        stalled = problem.stalled
    else:
        reason, message, stalled = _summary(state, group)
        message = f"{message}; {remark}" if remark else message
    ended = state in ENDED
    succeeded = state == "COMPLETED"
    ready = succeeded and not problem
    conditions = [condition("Ready", ready, reason, message)]
    if not ready:
        conditions.append(condition("Stalled" if stalled else "Reconciling", True, reason, message))
    conditions.append(condition("Finished", ended, reason, message))
    if ended:
        conditions.append(condition("Succeeded", succeeded, reason, message))
    if "groupId" in status and state not in (PENDING, "ACTIVE", "COMPLETED"):
        undos = status.get("compensation") or {"total": 0, "completed": 0}
        undone = f"{undos['completed']} of {undos['total']} undone"
        whole = ended and undos["completed"] == undos["total"]
        conditions.append(condition("Compensated", whole, reason, undone))
    return conditions


def _summary(state: str, group: GroupState | None) -> tuple[str, str, bool]:
    """Return the reason, the message and whether a person is needed."""
    if group is None:
        return reasons.PENDING, "the group has not been created yet", False
    done = f"{group.completed_count} of {group.total_jobs} jobs completed"
    if state == "ACTIVE":
        return reasons.RUNNING, done, False
    if state == "COMPENSATING":
        undone = f"{group.undone_count} of {group.undo_count} undone"
        return reasons.COMPENSATING, f"compensating, {undone}", False
    ends = {"COMPLETED": reasons.COMPLETED, "FAILED": reasons.FAILED}
    return ends.get(state, reasons.COMPENSATION_FAILED), end_message(group), state != "COMPLETED"
