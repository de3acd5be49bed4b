"""A group as read from Redis -> the `.status` of its JobGroup. Pure.

The status never contains the data or the return value of a job: users who may read the resource
need not be allowed to read those.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from jobgroup.model.names import UNDO_SUFFIX, undo_id
from jobgroup.model.snapshot import ENDED, GroupJob, GroupState, JobFailure
from jobgroup.resource import reasons
from jobgroup.resource.answers import AnswerState
from jobgroup.resource.conditions import (
    Problem,
    condition,
    sanitize,
    to_rfc3339,
    with_transition_time,
)
from jobgroup.resource.requests import cancelled_by, requests_of

MAX_LINES = 100
# Each write of a status stores the whole object again, so a status is kept below 64 KB.
MAX_LINES_BYTES = 40_000
# How many failures of jobs, and of undos, a status explains, and how long each reason may be.
MAX_FAILURES = 10
MAX_LINE_REASON = 512
# The same for a message.
MAX_NAMED = 3
MAX_NAMED_REASON = 200
PENDING = "PENDING"

# The stored reason of a group that was cancelled.
CANCELLED = "cancelled"
# The stored reason of a group that failed without a failed job -> its sentence.
_REQUESTS = {
    CANCELLED: "a cancellation was requested",
    reasons.DEADLINE_EXCEEDED: "spec.activeDeadlineSeconds passed",
}

# The reason of a group of which jobs or undos wait without a worker.
_UNSERVED = {"ACTIVE": reasons.NO_WORKER, "COMPENSATING": reasons.NO_UNDO_WORKER}

NONE: Mapping[str, JobFailure] = MappingProxyType({})
NO_ANSWERS: Mapping[str, AnswerState] = MappingProxyType({})

# The order of the jobs: failed ones first, then those that need attention.
_RANKS = {"failed": 0, "active": 1, "pending": 3, "completed": 4, "cancelled": 5}
_UNDO_RANKS = {"failed": 0, "pending": 2, "resolved": 2}


def derive_status(
    generation: int,
    previous: Mapping[str, Any],
    now: int,
    group: GroupState | None = None,
    jobs: Sequence[GroupJob] = (),
    names: Mapping[str, str] | None = None,
    problem: Problem | None = None,
    remark: str = "",
    failures: Mapping[str, JobFailure] = NONE,
    answers: Mapping[str, AnswerState] = NO_ANSWERS,
) -> dict[str, Any]:
    """Return the whole status; `names` are job names by id, `previous` is the current status.

    `failures` are the known failures of jobs and undos by their ids, `answers` says what became
    of the answers in the spec, by job id.

    Without a group the state stays as it was, or is PENDING. A terminal status does not change if
    Redis is unavailable or has lost the group. Without a problem, `remark` is appended to the
    message of the conditions: where jobs or undos wait without a worker.
    """
    if group is None and previous.get("state") in ENDED:
        if problem is None:
            return _with_observed_generation(generation, previous)
        if not problem.stalled:
            return dict(previous)
    if group:
        fields = _group_fields(group, jobs, names or {}, failures, answers)
    else:
        fields = {**_initial_fields(), **previous}
    status = {**fields, "observedGeneration": generation}
    if group is None and status["state"] in ENDED:
        status.setdefault("finishedAt", to_rfc3339(now))
    wanted = _conditions(status, group, problem, remark, failures)
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


def ready_reason(status: Mapping[str, Any]) -> str:
    """Return the reason of the condition Ready; empty if there is none."""
    for each in status.get("conditions") or ():
        if each.get("type") == "Ready":
            return str(each.get("reason"))
    return ""


def _with_observed_generation(generation: int, previous: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same status for a new generation of the object."""
    seen = {"observedGeneration": generation}
    conditions = [{**each, **seen} for each in previous.get("conditions") or ()]
    return {**previous, **seen, "conditions": conditions}


def _initial_fields() -> dict[str, Any]:
    return {"state": PENDING, "progress": ""}


def _group_fields(
    group: GroupState,
    jobs: Sequence[GroupJob],
    names: Mapping[str, str],
    failures: Mapping[str, JobFailure],
    answers: Mapping[str, AnswerState],
) -> dict[str, Any]:
    lines = _lines(jobs, names, failures, answers)
    status: dict[str, Any] = {
        "groupId": group.id,
        "state": group.state,
        "progress": f"{group.completed_count}/{group.total_jobs}",
        "totalJobs": group.total_jobs,
        "completedCount": group.completed_count,
        "failedCount": group.failed_count,
        "cancelledCount": group.cancelled_count,
        "jobs": lines,
        "events": _events(group, names, failures),
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
        if group.resolved_count:
            status["compensation"]["resolved"] = group.resolved_count
        if group.retries:
            status["compensation"]["retries"] = group.retries
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


def _lines(
    jobs: Sequence[GroupJob],
    names: Mapping[str, str],
    failures: Mapping[str, JobFailure],
    answers: Mapping[str, AnswerState],
) -> list[dict[str, Any]]:
    """Return one entry for each job, in the order of _RANKS, as many as fit."""
    lines: list[dict[str, Any]] = []
    room = MAX_LINES_BYTES
    for job in sorted(jobs, key=_rank)[:MAX_LINES]:
        line = _line(job, names, failures)
        if answer := answers.get(job.job_id):
            line["answer"] = answer
        room -= len(json.dumps(line)) + 2
        if room < 0:
            break
        lines.append(line)
    return lines


def _rank(job: GroupJob) -> int:
    return min(_RANKS[job.status], _UNDO_RANKS.get(job.undo, 9))


def _line(
    job: GroupJob, names: Mapping[str, str], failures: Mapping[str, JobFailure]
) -> dict[str, Any]:
    line: dict[str, Any] = {
        "name": names.get(job.job_id, ""),
        "queueName": job.queue_name,
        "jobId": job.job_id,
        "status": job.status,
    }
    if job.undo:
        line["undo"] = job.undo
    if job.undo == "resolved":
        reason = sanitize(job.resolved_reason, MAX_LINE_REASON)
        given = {"by": job.resolved_by, "reason": reason}
        line["resolved"] = {field: value for field, value in given.items() if value}
    if job.status == "failed" and (failure := failures.get(job.job_id)):
        line["failure"] = _failure_fields(failure)
    if job.undo == "failed" and (failure := failures.get(undo_id(job.job_id))):
        line["undoFailure"] = _failure_fields(failure)
    return line


def _failure_fields(failure: JobFailure) -> dict[str, Any]:
    fields = {
        "name": failure.name,
        "queueName": failure.queue_name,
        "attemptsMade": failure.attempts_made,
        "reason": sanitize(failure.reason, MAX_LINE_REASON),
    }
    return {name: value for name, value in fields.items() if value}


def with_reported(
    failures: Mapping[str, JobFailure], status: Mapping[str, Any]
) -> dict[str, JobFailure]:
    """Return the failures; one whose job is gone is taken from the current status, if it is there.

    Retention removes jobs after their group has ended, and people remove undos.
    """
    reported = {}
    for line in status.get("jobs") or ():
        for field, its_id in (("failure", line["jobId"]), ("undoFailure", undo_id(line["jobId"]))):
            if known := line.get(field):
                name, queue = known.get("name", ""), known.get("queueName", "")
                made, reason = known.get("attemptsMade", 0), known.get("reason", "")
                reported[its_id] = JobFailure(its_id, name, queue, made, reason)
    return {
        its_id: failure if failure.name else reported.get(its_id, failure)
        for its_id, failure in failures.items()
    }


def failure_line(failure: JobFailure, limit: int) -> str:
    """Return in one line which job failed for good and why."""
    made = failure.attempts_made
    attempts = f" after {made} attempt{'s' if made > 1 else ''}" if made else ""
    reason = sanitize(failure.reason, limit)
    return f"{failure.name or failure.job_id} in {failure.queue_name} failed{attempts}: {reason}"


def _events(
    group: GroupState, names: Mapping[str, str], failures: Mapping[str, JobFailure]
) -> list[dict[str, str]]:
    """Return the history of a group: its own events, each at most once, and requests."""
    events = [(group.created_at, "Created", f"{group.total_jobs} jobs created")]
    if group.failed_at is not None:
        events.append((group.failed_at, "Failing", failure_message(group, names)))
    events += [(each.at, each.reason, each.message) for each in requests_of(group, names)]
    if group.finished_at is not None:
        events.append((group.finished_at, "Ended", end_message(group, failures)))
    return [
        {"time": to_rfc3339(time), "type": kind, "message": message}
        for time, kind, message in sorted(events, key=lambda event: event[0])
    ]


def failure_message(group: GroupState, names: Mapping[str, str]) -> str:
    """Return in one line why a group failed or was cancelled."""
    if not group.failed_job_id:
        by = cancelled_by(group) if group.reason == CANCELLED else ""
        if group.reason == reasons.DEADLINE_EXCEEDED and group.deadline_seconds is not None:
            return f"its deadline of {group.deadline_seconds} seconds passed"
        return sanitize(f"{_REQUESTS.get(group.reason, group.reason)}{by}")
    name = names.get(group.failed_job_id, group.failed_job_id)
    return sanitize(f'job "{name}" failed: {group.reason}')


def end_message(group: GroupState, failures: Mapping[str, JobFailure] = NONE) -> str:
    """Return in one line how a group ended, and which of these failures are of undos."""
    if group.state == "COMPLETED":
        return f"all {group.total_jobs} jobs completed"
    if not group.undo_count:
        return "failed, nothing had to be undone"
    return sanitize(f"failed, {_undone(group, failures)}")


def _progress(group: GroupState, failures: Mapping[str, JobFailure]) -> str:
    """Return in one line what a group that was given up waits for."""
    parts = ["compensating"]
    if group.undo_count:
        parts.append(_undone(group, failures))
    ended = group.completed_count + group.failed_count + group.cancelled_count
    if left := group.total_jobs - ended:
        parts.append(f"waiting for {left} job{'s' if left > 1 else ''} to end")
    return sanitize(", ".join(parts))


def _undone(group: GroupState, failures: Mapping[str, JobFailure]) -> str:
    """Return how many undos completed or were resolved, and which failed."""
    undone = _counts(group.undone_count, group.undo_count, group.resolved_count)
    failed = group.undo_failed_count
    if not failed:
        return undone
    undos = [each for its_id, each in failures.items() if its_id.endswith(UNDO_SUFFIX)]
    lines = [failure_line(each, MAX_NAMED_REASON) for each in undos[:MAX_NAMED]]
    if lines and failed > len(lines):
        lines.append(f"and {failed - len(lines)} more")
    return f"{undone}, {failed} could not be undone" + (f": {'; '.join(lines)}" if lines else "")


def _counts(undone: int, total: int, resolved: int) -> str:
    """Return how many undos completed, and how many people resolved."""
    return f"{undone} of {total} undone" + (f", {resolved} resolved" if resolved else "")


def _conditions(
    status: Mapping[str, Any],
    group: GroupState | None,
    problem: Problem | None,
    remark: str,
    failures: Mapping[str, JobFailure],
) -> list[dict[str, str]]:
    """Return the conditions: for kstatus, and for people who use `kubectl wait`."""
    state = status["state"]
    if problem:
        reason, message = problem.reason, problem.message
        stalled = problem.stalled
    else:
        reason, message, stalled = _summary(state, group, failures)
        if group and group.on_end_error:
            message = f"{message}; onEnd: {sanitize(group.on_end_error, MAX_NAMED_REASON)}"
        if remark:
            reason = _UNSERVED.get(state, reason)
            message = f"{message}; {remark}"
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
        resolved = undos.get("resolved", 0)
        whole = ended and undos["completed"] + resolved == undos["total"]
        if undos["total"]:
            message = _counts(undos["completed"], undos["total"], resolved)
        elif ended:
            message = "nothing had to be undone"
        conditions.append(condition("Compensated", whole, reason, message))
    return conditions


def _summary(
    state: str, group: GroupState | None, failures: Mapping[str, JobFailure]
) -> tuple[str, str, bool]:
    """Return the reason, the message and whether a person is needed."""
    if group is None:
        return reasons.PENDING, "the group has not been created yet", False
    done = f"{group.completed_count} of {group.total_jobs} jobs completed"
    if state == "ACTIVE":
        return reasons.RUNNING, done, False
    if state == "COMPENSATING":
        return reasons.COMPENSATING, _progress(group, failures), False
    ends = {"COMPLETED": reasons.COMPLETED, "FAILED": reasons.FAILED}
    reason = ends.get(state, reasons.COMPENSATION_FAILED)
    return reason, end_message(group, failures), state != "COMPLETED"
