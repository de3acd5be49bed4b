"""Groups and jobs as texts for people and as fields for programs; rendering only."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from jobgroup.snapshot import GroupJob, GroupState

BAR = 20


def time_of(milliseconds: int) -> str:
    """Spell a time as Kubernetes does, to the millisecond."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def group_fields(group: GroupState) -> dict[str, Any]:
    """Return all that is known of a group, under the names its hash in Redis has."""
    fields = {_camel(name): value for name, value in asdict(group).items()}
    times = {
        name: time_of(value) for name, value in fields.items() if name.endswith("At") and value
    }
    return {**fields, **times}


def job_fields(job: GroupJob) -> dict[str, Any]:
    """Return all that is known of a member, the key, which is long, last."""
    fields = {_camel(name): value for name, value in asdict(job).items()}
    return {"jobId": "", "queueName": "", "status": "", "undo": "", **fields}


def group_line(group: GroupState) -> str:
    """Say in one line how far a group is."""
    counts = [f"{group.completed_count}/{group.total_jobs} completed"]
    counts += [f"{group.failed_count} failed"] if group.failed_count else []
    counts += [f"{group.cancelled_count} cancelled"] if group.cancelled_count else []
    counts += [f"{group.undone_count}/{group.undo_count} undone"] if group.undo_count else []
    counts += [f"{group.undo_failed_count} not undone"] if group.undo_failed_count else []
    why = f" ({_blame(group)})" if group.reason else ""
    return printable(f"{group.id} {group.name} {group.state}: {', '.join(counts)}{why}")


def live_line(group: GroupState, width: int) -> str:
    """Say the same with a bar, cut to the width of a terminal."""
    undoing = group.state != "COMPLETED" and group.undo_count > 0
    done = group.undone_count if undoing else group.completed_count
    total = group.undo_count if undoing else group.total_jobs
    filled = BAR * done // total
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {group_line(group)}"[: max(width - 1, 0)]


def listing(fields: Mapping[str, Any]) -> str:
    """Lay fields out one a line."""
    width = max(map(len, fields))
    return "\n".join(f"{name:{width}}  {_cell(value)}" for name, value in fields.items())


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay rows out in columns under their names."""
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def is_overdue(group: GroupState) -> bool:
    """Say whether a driver, if one ran, would move the group on at once."""
    decided = group.failed_count > 0 or group.completed_count == group.total_jobs
    return group.state == "ACTIVE" and decided


def printable(text: str) -> str:
    """Keep a text on one line and out of the terminal's controls, whatever a worker wrote in it."""
    return "".join(char if char.isprintable() else " " for char in text)


def _blame(group: GroupState) -> str:
    return f"{group.failed_job_id}: {group.reason}" if group.failed_job_id else group.reason


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _cell(value: Any) -> str:
    return "-" if value in (None, "") else printable(str(value))
