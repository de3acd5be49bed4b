"""Groups and jobs as text for people and as fields for programs. No I/O."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobgroup.model import names
from jobgroup.model.snapshot import GroupJob, GroupState, JobDetails, JobFailure, JobResult, Record
from jobgroup.model.text import printable, time_of
from jobgroup.resource.requests import why
from jobgroup.resource.status import failure_line, failure_message

BAR = 20
# Fields of a job that few jobs have, and that a table has no column for.
_NO_COLUMN = ("undoQueue", "answer", "resolvedBy", "resolvedReason")
# Fields of a group that are not listed while they have these values, which most groups have.
_USUAL = {"compensatingAt": None, "retries": 0, "resolvedCount": 0, "attempt": 1}
MAX_REASON = 1024


def program() -> str:
    """Return how the command line was called: by its console script or as a module."""
    return "jobgroup" if Path(sys.argv[0]).stem == "jobgroup" else "python -m jobgroup"


def group_fields(group: GroupState) -> dict[str, Any]:
    """Return all fields of a group, with the names of its hash in Redis."""
    fields = _fields(group)
    if not group.on_end_error:
        del fields["onEndError"]
    times = {
        name: time_of(value) for name, value in fields.items() if name.endswith("At") and value
    }
    records = [{**record, "at": time_of(record["at"])} for record in fields["records"]]
    return {**fields, **times, "records": records}


def job_fields(details: JobDetails) -> dict[str, Any]:
    """Return the fields of a job for a table; the key is last because it is long."""
    fields = {"name": details.name, **_fields(details.job)}
    fields = {name: value for name, value in fields.items() if name not in _NO_COLUMN}
    return {"jobId": "", "name": "", "queueName": "", "status": "", "undo": "", **fields}


def job_object(details: JobDetails) -> dict[str, Any]:
    """Return the fields of a job, and why it and its undo failed, for a program."""
    failures = {"failure": details.failure, "undoFailure": details.undo_failure}
    objects = {name: failure and _fields(failure) for name, failure in failures.items()}
    rest = {name: value for name, value in _fields(details.job).items() if name in _NO_COLUMN}
    return {**job_fields(details), **rest, **objects}


def failure_lines(jobs: Sequence[JobDetails]) -> list[str]:
    """Return a line for each failure of a job or of an undo, and for each resolved undo.

    Another line has the number of failures that were not read.
    """
    found = [each for job in jobs for each in (job.failure, job.undo_failure) if each]
    lines = [*map(_failure_line, found), *(_resolution_line(job) for job in _resolved(jobs))]
    unread = sum((job.job.status, job.job.undo).count("failed") for job in jobs) - len(found)
    return [*lines, f"{unread} more failures are not listed"] if unread else lines


def undo_lines(jobs: Sequence[JobDetails]) -> list[str]:
    """Return a line for each failed undo that was read, and for each resolved one."""
    failed = [_failure_line(job.undo_failure) for job in jobs if job.undo_failure]
    return [*failed, *(_resolution_line(job) for job in _resolved(jobs))]


def _resolved(jobs: Sequence[JobDetails]) -> list[JobDetails]:
    return [job for job in jobs if job.job.undo == "resolved"]


def _resolution_line(details: JobDetails) -> str:
    job = details.job
    by = f" by {job.resolved_by}" if job.resolved_by else ""
    return printable(f"{names.undo_id(job.job_id)} was resolved{by}: {job.resolved_reason}")


def _failure_line(failure: JobFailure) -> str:
    head = f"{failure.job_id} " if failure.name else ""
    return printable(head + failure_line(failure, MAX_REASON))


def group_line(group: GroupState) -> str:
    """Return the progress of a group in one line."""
    counts = [f"{group.completed_count}/{group.total_jobs} completed"]
    counts += [f"{group.failed_count} failed"] if group.failed_count else []
    counts += [f"{group.cancelled_count} cancelled"] if group.cancelled_count else []
    counts += [f"{group.undone_count}/{group.undo_count} undone"] if group.undo_count else []
    counts += [f"{group.resolved_count} resolved"] if group.resolved_count else []
    counts += [f"{group.undo_failed_count} not undone"] if group.undo_failed_count else []
    cause = f" ({_cause(group)})" if group.reason else ""
    return printable(
        f"{group.id} {group.resource or group.name} {group.state}: {', '.join(counts)}{cause}"
    )


def live_line(group: GroupState, width: int) -> str:
    """Return the line with a progress bar, cut to the width of the terminal."""
    undoing = group.state != "COMPLETED" and group.undo_count > 0
    done = group.undone_count if undoing else group.completed_count
    total = group.undo_count if undoing else group.total_jobs
    filled = BAR * done // total
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {group_line(group)}"[: max(width - 1, 0)]


def group_listing(group: GroupState) -> str:
    """Return the fields of a group, one per line, and then its recorded requests."""
    fields = group_fields(group)
    del fields["records"]
    fields = {name: value for name, value in fields.items() if _USUAL.get(name, fields) != value}
    return "\n".join([_listing(fields), *map(_record_line, group.records)])


def _record_line(record: Record) -> str:
    about = f" {record.job}" if record.job else ""
    by = f" by {record.by}" if record.by else ""
    return printable(f"{time_of(record.at)} {record.verb}{about}{by}{why(record)}")


def _listing(fields: Mapping[str, Any]) -> str:
    width = max(map(len, fields))
    return "\n".join(f"{name:{width}}  {_cell(value)}" for name, value in fields.items())


def group_row(group: GroupState) -> dict[str, Any]:
    """Return the fields of a group for a table of many; the cause is last because it is long."""
    undone = f"{group.undone_count}/{group.undo_count}" if group.undo_count else ""
    return {
        "id": group.id,
        "name": group.resource or group.name,
        "state": group.state,
        "since": time_of(group.since),
        "completed": f"{group.completed_count}/{group.total_jobs}",
        "undone": undone,
        "reason": _cause(group) if group.reason else "",
    }


def job_value(result: JobResult) -> dict[str, Any]:
    """Return the fields of a job and what it returned; the value is last because it is long."""
    return _fields(result)


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a table with a header."""
    return "\n".join(rows(found, []))


def rows(found: Sequence[Mapping[str, Any]], widths: list[int]) -> list[str]:
    """Return the lines of a part of a table, with a header if it is the first part.

    `widths` are those of the columns of the parts before, and become those of this part.
    """
    columns = list(found[0])
    cells = [[_cell(row[name]) for name in columns] for row in found]
    if not widths:
        widths += [0] * len(columns)
        cells.insert(0, columns)
    widths[:] = map(max, widths, (max(map(len, column)) for column in zip(*cells, strict=True)))
    return [
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _fields(value: GroupState | GroupJob | JobFailure | JobResult) -> dict[str, Any]:
    return {names.field_name(name): each for name, each in asdict(value).items()}


def _cause(group: GroupState) -> str:
    if group.failed_job_id:
        return f"{group.failed_job_id}: {group.reason}"
    return failure_message(group, {})


def _cell(value: Any) -> str:
    return "-" if value in (None, "") else printable(str(value))
