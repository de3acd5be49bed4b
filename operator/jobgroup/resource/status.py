"""What Redis knows of a group -> the `.status` of its resource. One pure function.

No return value and no data of a job ever gets in here: whoever may read a resource need not be
allowed to read what its jobs are about.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobgroup.conditions import Trouble, clean, condition, dated, seconds
from jobgroup.snapshot import ENDED, GroupJob, GroupState

MAX_LINES = 100
# Each status write stores the whole object anew; 64 KB are the most a status may have.
MAX_LINES_BYTES = 40_000
PENDING = "PENDING"

# Which jobs a person looks for first.
_RANKS = {"failed": 0, "active": 1, "pending": 3, "completed": 4, "cancelled": 5}
_UNDO_RANKS = {"failed": 0, "pending": 2}


def derive_status(
    generation: int,
    previous: Mapping[str, Any],
    now: int,
    group: GroupState | None = None,
    jobs: Sequence[GroupJob] = (),
    names: Mapping[str, str] | None = None,
    trouble: Trouble | None = None,
    remark: str = "",
) -> dict[str, Any]:
    """Return the whole status; `names` are the jobs' names by id, `previous` is what stands there.

    Without a group the state stays what it was: PENDING, unless the group is gone. What has been
    said of an end stays said, whether Redis is away or has forgotten it. A remark is added to what
    the conditions say of a group.
    """
    if group is None and previous.get("state") in ENDED:
        if trouble is None:
            return _seen_again(generation, previous)
        if not trouble.stalled:
            return dict(previous)
    known = _of_group(group, jobs, names or {}) if group else {**_nothing_yet(), **previous}
    status = {**known, "observedGeneration": generation}
    if group is None and status["state"] in ENDED:
        status.setdefault("finishedAt", seconds(now))
    wanted = _conditions(status, group, trouble, remark)
    status["conditions"] = [
        dated(each, previous.get("conditions") or (), generation, now) for each in wanted
    ]
    return status


def skipped(before: str, group: GroupState) -> GroupState | None:
    """Return a group as it was in a state that its status never told of, if there was one.

    Whoever waits for COMPENSATING is to see it, however quickly all was undone.
    """
    if not group.ended or not group.was_compensating or before in ("COMPENSATING", *ENDED):
        return None
    return replace(
        group, state="COMPENSATING", finished_at=None, undone_count=0, undo_failed_count=0
    )


def _seen_again(generation: int, previous: Mapping[str, Any]) -> dict[str, Any]:
    """Say the same of a changed object."""
    seen = {"observedGeneration": generation}
    conditions = [{**each, **seen} for each in previous.get("conditions") or ()]
    return {**previous, **seen, "conditions": conditions}


def _nothing_yet() -> dict[str, Any]:
    return {"state": PENDING, "progress": ""}


def _of_group(
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
        "startedAt": seconds(group.created_at),
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
            "reason": clean(group.reason),
            "attemptsMade": group.failed_attempts,
        }
    elif group.failed_at is not None:
        status["failure"] = {"reason": clean(group.reason)}
    if group.finished_at is not None:
        status["finishedAt"] = seconds(group.finished_at)
    return status


def _lines(jobs: Sequence[GroupJob], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a line a job, as many as fit, those first that a person looks for first."""
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
    """Tell the group's life; each of its events happens at most once."""
    told = [(group.created_at, "Created", f"{group.total_jobs} jobs created")]
    if group.failed_at is not None:
        told.append((group.failed_at, "Failing", why(group, names)))
    if group.finished_at is not None:
        told.append((group.finished_at, "Ended", ending(group)))
    return [
        {"time": seconds(time), "type": kind, "message": message} for time, kind, message in told
    ]


def why(group: GroupState, names: Mapping[str, str]) -> str:
    """Say why a group was given up, in one line."""
    if not group.failed_job_id:
        return {"DeadlineExceeded": "its deadline passed"}.get(group.reason, clean(group.reason))
    name = names.get(group.failed_job_id, group.failed_job_id)
    return clean(f'job "{name}" failed: {group.reason}')


def ending(group: GroupState) -> str:
    """Say how a group ended."""
    if group.state == "COMPLETED":
        return f"all {group.total_jobs} jobs completed"
    if not group.undo_count:
        return "failed, nothing had to be undone"
    undone = f"{group.undone_count} of {group.undo_count} undone"
    return f"failed, {undone}" + (", the rest could not be" if group.undo_failed_count else "")


def _conditions(
    status: Mapping[str, Any], group: GroupState | None, trouble: Trouble | None, remark: str
) -> list[dict[str, str]]:
    """Say it for machines, as kstatus reads them, and for people."""
    state = status["state"]
    if trouble:
        reason, message = trouble.reason, trouble.message
        stalled = trouble.stalled
    else:
        reason, message, stalled = _summary(state, group)
        message = f"{message}; {remark}" if remark else message
    ended = state in ENDED
    succeeded = state == "COMPLETED"
    ready = succeeded and not trouble
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
        return "Pending", "the group has not been created yet", False
    done = f"{group.completed_count} of {group.total_jobs} jobs completed"
    if state == "ACTIVE":
        return "Running", done, False
    if state == "COMPENSATING":
        undone = f"{group.undone_count} of {group.undo_count} undone"
        return "Compensating", f"given up, {undone}", False
    reasons = {"COMPLETED": "Completed", "FAILED": "Failed"}
    return reasons.get(state, "CompensationFailed"), ending(group), state != "COMPLETED"
