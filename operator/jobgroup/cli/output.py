"""Groups and jobs as text for people and as fields for programs. No I/O."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobgroup.model import names
from jobgroup.model.snapshot import GroupJob, GroupState
from jobgroup.model.text import printable, time_of

BAR = 20


def program() -> str:
    """Return how the command line was called: by its console script or as a module."""
    return "jobgroup" if Path(sys.argv[0]).stem == "jobgroup" else "python -m jobgroup"


def group_fields(group: GroupState) -> dict[str, Any]:
    """Return all fields of a group, with the names of its hash in Redis."""
    fields = {names.field_name(name): value for name, value in asdict(group).items()}
    times = {
        name: time_of(value) for name, value in fields.items() if name.endswith("At") and value
    }
    return {**fields, **times}


def job_fields(job: GroupJob) -> dict[str, Any]:
    """Return all fields of a job; the key is last because it is long."""
    fields = {names.field_name(name): value for name, value in asdict(job).items()}
    return {"jobId": "", "queueName": "", "status": "", "undo": "", **fields}


def group_line(group: GroupState) -> str:
    """Return the progress of a group in one line."""
    counts = [f"{group.completed_count}/{group.total_jobs} completed"]
    counts += [f"{group.failed_count} failed"] if group.failed_count else []
    counts += [f"{group.cancelled_count} cancelled"] if group.cancelled_count else []
    counts += [f"{group.undone_count}/{group.undo_count} undone"] if group.undo_count else []
    counts += [f"{group.undo_failed_count} not undone"] if group.undo_failed_count else []
    cause = f" ({_cause(group)})" if group.reason else ""
    return printable(f"{group.id} {group.name} {group.state}: {', '.join(counts)}{cause}")


def live_line(group: GroupState, width: int) -> str:
    """Return the line with a progress bar, cut to the width of the terminal."""
    undoing = group.state != "COMPLETED" and group.undo_count > 0
    done = group.undone_count if undoing else group.completed_count
    total = group.undo_count if undoing else group.total_jobs
    filled = BAR * done // total
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {group_line(group)}"[: max(width - 1, 0)]


def listing(fields: Mapping[str, Any]) -> str:
    """Return the fields, one per line."""
    width = max(map(len, fields))
    return "\n".join(f"{name:{width}}  {_cell(value)}" for name, value in fields.items())


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a table with a header."""
    columns = list(rows[0])
    cells = [columns, *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _cause(group: GroupState) -> str:
    return f"{group.failed_job_id}: {group.reason}" if group.failed_job_id else group.reason


def _cell(value: Any) -> str:
    return "-" if value in (None, "") else printable(str(value))
