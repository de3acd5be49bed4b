"""The status that status.py derives matches the schema of the CRD in every state."""

import json
import re
from typing import Any

import pytest

from jobgroup.model.snapshot import GroupJob, JobFailure, Record
from jobgroup.resource.conditions import Problem
from jobgroup.resource.jobgroup_status import EventLine, JobGroupStatus
from jobgroup.resource.status import derive_status
from tests.builders import group

LONG = "\N{PILE OF POO}" * 5000
JOBS = [
    GroupJob("g-0", "bull:q:g-0", "failed", "q"),
    GroupJob("g-1", "bull:q:g-1", "completed", "q", "completed"),
    GroupJob("g-2", "bull:q:g-2", "completed", "q", "failed"),
    GroupJob("g-3", "bull:q:g-3", "active", "q", "pending"),
]
FAILED = {
    "failed_job_id": "g-0",
    "reason": LONG,
    "failed_at": 2_000,
    "failed_attempts": 3,
    "failed_count": 1,
    "completed_count": 2,
    "undo_count": 2,
    "undone_count": 1,
    "undo_failed_count": 1,
}


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        ("ACTIVE", {}),
        ("COMPENSATING", FAILED),
        ("COMPLETED", {"completed_count": 4, "finished_at": 3_000}),
        ("FAILED", {"reason": "cancelled", "finished_at": 3_000}),
        ("FAILED_COMPENSATION", {**FAILED, "finished_at": 3_000}),
    ],
)
def test_a_derived_status_fits_the_schema(state: str, fields: dict[str, Any]) -> None:
    many = [GroupJob(f"g-{n}", f"bull:q:g-{n}", "pending", "q") for n in range(4, 2000)]
    names = {f"g-{n}": "x" * 253 for n in range(2000)}
    failures = {
        its_id: JobFailure(its_id, "undo", "q:compensation", 3, LONG)
        for its_id in ("g-0", "g-2-undo")
    }
    jobs = [*JOBS, *many]
    status = derive_status(3, {}, 5_000, group(state, **fields), jobs, names, failures=failures)
    assert {"failure", "undoFailure"} <= {field for line in status["jobs"] for field in line}
    assert JobGroupStatus.model_validate_json(json.dumps(status)).state == state


@pytest.mark.parametrize("stalled", [True, False])
def test_a_problem_fits_the_schema(stalled: bool) -> None:
    status = derive_status(1, {}, 5_000, problem=Problem("InvalidSpec", LONG, stalled))
    assert JobGroupStatus.model_validate_json(json.dumps(status)).state == "PENDING"


def test_the_types_of_events_are_described() -> None:
    verbs = ("retryUndos", "resolve", "complete")
    records = tuple(Record(verb, 4_000) for verb in verbs)
    fields = {**FAILED, "finished_at": 3_000, "records": records}
    ended = derive_status(1, {}, 5_000, group("FAILED", **fields))
    described = re.findall(r"[A-Z]\w+(?= |$|,|\.)", str(EventLine.model_fields["type"].description))
    assert [each["type"] for each in ended["events"]] == described[1:]
