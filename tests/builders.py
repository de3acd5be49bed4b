"""Values of one line for tables of cases."""

from typing import Any

from jobgroup.snapshot import GroupState


def group(state: str = "ACTIVE", **fields: Any) -> GroupState:
    """Make a group of four jobs as Redis would tell it."""
    row = {
        "created_at": 1_000,
        "updated_at": 2_500,
        "total_jobs": 4,
        "completed_count": 0,
        "failed_count": 0,
        "cancelled_count": 0,
        "revision": 1,
        "failed_job_id": "",
        "reason": "",
        "finished_at": None,
        "undo_count": 0,
        "undone_count": 0,
        "undo_failed_count": 0,
        "failed_at": None,
        "failed_attempts": 0,
        "owner": "headless",
    }
    assert fields.keys() <= row.keys()
    return GroupState(id="g", name="order", state=state, **{**row, **fields})  # type: ignore[arg-type]
