"""The resolved undos and the retries in a spec: what is done now."""

from dataclasses import replace
from typing import Any

import pytest

from jobgroup.model.snapshot import GroupJob, JobStatus, UndoStatus
from jobgroup.resource.decisions import Resource, Step, next_step, requeue_at
from jobgroup.resource.resolutions import (
    Resolution,
    are_awaited,
    due_resolutions,
    standing_resolutions,
)
from tests.builders import group
from tests.jobgroup.resource.test_decisions import (
    ACTIVE,
    CLAIMED,
    COMPENSATING,
    HALF_UNDONE,
    INCARNATION,
    NOW,
    reported,
)

REFUNDED = Resolution("refunded by hand", "ann")
FAILED_TWICE = replace(HALF_UNDONE, retries=1)
ENDED = reported(CLAIMED, "FAILED_COMPENSATION")


def body(**resolved: Any) -> dict[str, Any]:
    jobs = [{"name": name} for name in ("charge", "approve", "ship")]
    return {"metadata": {"uid": "g"}, "spec": {"jobs": jobs, "resolved": resolved}}


def undo_of(undo: UndoStatus, status: JobStatus = "completed") -> list[GroupJob]:
    return [GroupJob("g-0", "bull:q:g-0", status, "q", undo)]


def step(resource: Resource, found: Any, is_resolved: bool = False) -> Step:
    return next_step(resource, found, INCARNATION, NOW, is_resolved=is_resolved)


def test_resolutions_are_read_by_job_id() -> None:
    given = {
        "charge": {"reason": "refunded by hand", "by": "ann"},
        "ship": {"reason": "no\nparcel"},
        "nobody": {"reason": "gone"},
    }
    assert standing_resolutions(body(**given)) == {
        "g-0": REFUNDED,
        "g-2": Resolution("no parcel", ""),
    }
    assert standing_resolutions(body()) == {}


@pytest.mark.parametrize(
    ("state", "undo", "is_due"),
    [
        ("FAILED_COMPENSATION", "failed", True),
        ("FAILED_COMPENSATION", "pending", True),
        ("COMPENSATING", "failed", True),
        ("COMPENSATING", "pending", True),
        ("COMPENSATING", "completed", False),
        ("COMPENSATING", "resolved", False),
        ("COMPENSATING", "", False),
        ("ACTIVE", "", False),
        ("FAILED", "failed", False),
    ],
)
def test_undos_that_failed_or_wait_are_resolved(state: Any, undo: UndoStatus, is_due: bool) -> None:
    expected = {"g-0": REFUNDED} if is_due else {}
    assert due_resolutions({"g-0": REFUNDED}, group(state), undo_of(undo)) == expected
    assert due_resolutions({"g-1": REFUNDED}, group(state), undo_of(undo)) == {}


def test_nothing_is_due_without_a_group_or_a_resolution() -> None:
    assert due_resolutions({"g-0": REFUNDED}, None, []) == {}
    assert due_resolutions({}, group("COMPENSATING"), undo_of("failed")) == {}


@pytest.mark.parametrize(
    ("state", "undo", "status", "is_awaited"),
    [
        ("COMPENSATING", "", "active", True),
        ("COMPENSATING", "", "completed", True),
        ("COMPENSATING", "", "cancelled", False),
        ("COMPENSATING", "failed", "completed", True),
        ("COMPENSATING", "resolved", "completed", False),
        ("FAILED", "", "completed", False),
    ],
)
def test_a_resolution_waits_for_its_undo(
    state: Any, undo: UndoStatus, status: JobStatus, is_awaited: bool
) -> None:
    found = undo_of(undo, status)
    assert are_awaited({"g-0": REFUNDED}, group(state), found) is is_awaited
    assert not are_awaited({}, group(state), found)


def test_a_resolution_comes_before_a_retry_and_a_report() -> None:
    retried = replace(ENDED, retry_undos=1)
    for resource in (CLAIMED, ENDED, retried):
        assert step(resource, HALF_UNDONE, is_resolved=True) is Step.RESOLVE
        assert step(resource, HALF_UNDONE) is (Step.RETRY if resource is retried else Step.REPORT)
    assert step(CLAIMED, COMPENSATING, is_resolved=True) is Step.RESOLVE


def test_an_object_that_is_deleted_is_resolved_while_it_waits_for_its_undos() -> None:
    deleted = replace(ENDED, deleting=True)
    assert step(deleted, COMPENSATING, is_resolved=True) is Step.RESOLVE
    assert step(deleted, COMPENSATING) is Step.AWAIT_COMPENSATION
    assert step(deleted, HALF_UNDONE, is_resolved=True) is Step.REMOVE
    assert step(replace(deleted, orphan=True), COMPENSATING, is_resolved=True) is Step.ORPHAN


@pytest.mark.parametrize(
    ("resource", "found", "is_retried"),
    [
        (replace(ENDED, retry_undos=1), HALF_UNDONE, True),
        (replace(ENDED, retry_undos=0), HALF_UNDONE, False),
        # It was retried by request, and has failed again.
        (replace(ENDED, retry_undos=1), FAILED_TWICE, False),
        (replace(ENDED, retry_undos=1, retries=1), FAILED_TWICE, False),
        (replace(ENDED, retry_undos=2, retries=1), FAILED_TWICE, True),
        # The second end is not reported yet.
        (replace(ENDED, retry_undos=2), FAILED_TWICE, False),
        (replace(reported(CLAIMED, "COMPENSATING"), retry_undos=1), HALF_UNDONE, False),
        (replace(reported(CLAIMED, "COMPENSATING"), retry_undos=1), COMPENSATING, False),
        (replace(reported(CLAIMED, "ACTIVE"), retry_undos=1), ACTIVE, False),
    ],
)
def test_failed_undos_are_retried_when_their_end_was_reported(
    resource: Resource, found: Any, is_retried: bool
) -> None:
    assert (step(resource, found) is Step.RETRY) is is_retried
    assert (requeue_at(resource, found) == 0) is is_retried
    deleted = replace(resource, deleting=True)
    assert step(deleted, found) is not Step.RETRY
    assert requeue_at(deleted, found) is None


def test_an_object_that_ended_is_reconciled_again_if_its_spec_asks_for_more() -> None:
    def asks(state: str, retries: int = 0, **spec: Any) -> bool:
        counts = {"compensation": {"retries": retries}} if retries else {}
        status = {"groupId": "g", "state": state, **counts}
        found = {"metadata": {"uid": "g"}, "spec": spec, "status": status}
        return Resource.read(found).may_compensate_again

    resolved = {"charge": {"reason": "refunded"}}
    assert asks("FAILED_COMPENSATION", retryUndos=1)
    assert asks("FAILED_COMPENSATION", retryUndos=2, retries=1)
    assert asks("FAILED_COMPENSATION", resolved=resolved)
    assert not asks("FAILED_COMPENSATION", retryUndos=1, retries=1)
    assert not asks("FAILED_COMPENSATION")
    assert not asks("FAILED", retryUndos=1, resolved=resolved)
