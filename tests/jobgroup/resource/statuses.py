"""Groups, problems and their statuses for the tests of this folder."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobgroup.model.snapshot import GroupJob, GroupState, JobStatus, UndoStatus
from jobgroup.resource.conditions import MAX_REASON, Problem
from jobgroup.resource.decisions import PROBLEMS, Step
from jobgroup.resource.status import derive_status
from tests.builders import group

NOW = 1_700_000_000_000
NAMES = {"g-0": "reserve", "g-1": "charge", "g-2": "ship", "g-3": "mail"}
# The status of a new object, from the defaults of the CRD.
UNSEEN = {"observedGeneration": -1}

COMPENSATING = group(
    "COMPENSATING",
    completed_count=2,
    failed_count=1,
    cancelled_count=1,
    failed_job_id="g-1",
    reason="card declined",
    failed_attempts=3,
    failed_at=3_000,
    undo_count=2,
    undone_count=1,
)
FAILED = replace(COMPENSATING, state="FAILED", undone_count=2, finished_at=9_000)
HALF_UNDONE = replace(
    COMPENSATING, state="FAILED_COMPENSATION", undo_failed_count=1, finished_at=9_000
)
COMPLETED = group("COMPLETED", completed_count=4, finished_at=9_000)

INVALID = Problem("InvalidSpec", "Group must contain at least one job")
AWAY = Problem("RedisUnavailable", "Connection refused", stalled=False)
SUSPENDED, CANCELLED, LOST = (
    PROBLEMS[step] for step in (Step.BLOCK_SUSPENDED, Step.BLOCK_CANCELLED, Step.BLOCK_LOST)
)

HOSTILE = [
    "x" * 1_000_000,
    "\N{PILE OF POO}" * 300_000,
    "a\r\nb\tc\x1b[2J\x07\x7f\x85\u2028\u2029d",
    "\x00" * 2_000,
    "\ud800 half \udfff",
    "\u202egnirts\u200f\u2066\ufeff",
    "a" * (MAX_REASON - 1) + "\u00e9",
    '"\\' * 5_000,
    "\u00e9" * 5_000,
    "",
]


def job(n: int, status: JobStatus = "pending", undo: UndoStatus = "") -> GroupJob:
    return GroupJob(f"g-{n}", f"bull:q:g-{n}", status, "q", undo)


def derive(
    state: GroupState | None = None,
    previous: Mapping[str, Any] = UNSEEN,
    problem: Problem | None = None,
    now: int = NOW,
    generation: int = 1,
) -> dict[str, Any]:
    jobs = [job(n) for n in range(4)] if state else []
    return derive_status(generation, previous, now, state, jobs, NAMES, problem)


def statuses_by_type(status: Mapping[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def kstatus(status: Mapping[str, Any], generation: int = 1, deleting: bool = False) -> str:
    """Return what kstatus reads from an object, as tools do that apply and wait."""
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    if deleting:
        return "Terminating"
    if status.get("observedGeneration", generation) != generation:
        return "InProgress"
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions.get("Ready", "True") == "True" else "InProgress"


def is_harmless(text: str) -> bool:
    """Return whether a text is one printable line of valid UTF-8 within MAX_REASON bytes."""
    return text.isprintable() and len(text.encode()) <= MAX_REASON
