"""Short builders of values for tables of cases."""

import json
from typing import Any

from jobgroup.model.snapshot import GroupState


def group(state: str = "ACTIVE", **fields: Any) -> GroupState:
    """Return a group of four jobs."""
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
        "on_end_error": "",
        "owner": "headless",
        "resource": "",
        "records": (),
    }
    assert fields.keys() <= row.keys()
    return GroupState(id="g", name="order", state=state, **{**row, **fields})  # type: ignore[arg-type]


def deeply_nested(body: dict[str, Any]) -> str:
    """Return an object as JSON that is nested deeper than Python's parser allows by default."""
    first, *others = body["spec"]["jobs"]
    spec = {**body["spec"], "jobs": [{**first, "data": "HERE"}, *others]}
    levels = 9_000
    return json.dumps({**body, "spec": spec}).replace(
        '"HERE"', '{"in":' * levels + "1" + "}" * levels
    )
