"""The Events of a group and of a problem: each once, and never one for each job."""

import re
from dataclasses import replace
from typing import Any

import pytest

from jobgroup.model.snapshot import GroupState, JobFailure
from jobgroup.resource.conditions import MAX_REASON, Problem, sanitize
from jobgroup.resource.events import (
    ResourceEvent,
    events_of_problem,
    events_of_waiting_jobs,
    events_since,
    to_kubernetes_event,
)
from jobgroup.resource.status import derive_status
from tests.builders import group

NAMES = {"g-1": "charge"}

GIVEN_UP = group(
    "COMPENSATING",
    completed_count=2,
    failed_count=1,
    failed_job_id="g-1",
    reason="card declined",
    failed_at=3_000,
    undo_count=2,
)
UNDONE = replace(GIVEN_UP, state="FAILED", undone_count=2, finished_at=9_000)
HALF_UNDONE = replace(
    GIVEN_UP, state="FAILED_COMPENSATION", undone_count=1, undo_failed_count=1, finished_at=9_000
)
NOTHING_DONE = replace(
    UNDONE, completed_count=0, undo_count=0, undone_count=0, finished_at=UNDONE.failed_at
)
WAITED_FOR = replace(NOTHING_DONE, finished_at=9_000)
ON_REQUEST = replace(GIVEN_UP, failed_job_id="", reason="cancelled", failed_count=0)
LATE = replace(ON_REQUEST, reason="DeadlineExceeded")

DECLINED = ResourceEvent("Warning", "Failed", 'job "charge" failed: card declined', job="charge")
UNDOING = ResourceEvent(
    "Normal", "Compensating", "undoing the completed jobs: 2 of 4 jobs had completed"
)
WAITING = replace(UNDOING, message=UNDOING.message.replace("2 of", "0 of"))
WELL = ResourceEvent("Normal", "Compensated", "failed, 2 of 2 undone")
BADLY = ResourceEvent(
    "Warning", "CompensationFailed", "failed, 1 of 2 undone, 1 could not be undone"
)
CLOSED = JobFailure("g-1-undo", "refund", "q:compensation", 3, "bank closed")
CANCELLED = ResourceEvent("Normal", "Cancelled", "a cancellation was requested")
EXPIRED = ResourceEvent("Warning", "DeadlineExceeded", "spec.activeDeadlineSeconds passed")


@pytest.mark.parametrize(
    ("before", "state", "events"),
    [
        # No failure.
        ("", group(), []),
        ("PENDING", group(), []),
        ("ACTIVE", group(completed_count=3), []),
        ("ACTIVE", group("COMPLETED", completed_count=4, finished_at=9_000), []),
        ("", group("COMPLETED", completed_count=4, finished_at=9_000), []),
        # Step by step.
        ("ACTIVE", GIVEN_UP, [DECLINED, UNDOING]),
        ("COMPENSATING", replace(GIVEN_UP, undone_count=1), []),
        ("COMPENSATING", UNDONE, [WELL]),
        ("COMPENSATING", HALF_UNDONE, [BADLY]),
        ("COMPENSATING", NOTHING_DONE, []),
        # Several at once, if no status was written in between.
        ("ACTIVE", UNDONE, [DECLINED, UNDOING, WELL]),
        ("", HALF_UNDONE, [DECLINED, UNDOING, BADLY]),
        ("PENDING", NOTHING_DONE, [DECLINED]),
        # Nothing to undo yet: an active job may still complete.
        ("ACTIVE", replace(GIVEN_UP, completed_count=0, undo_count=0), [DECLINED, WAITING]),
        # It did not, and no status was written in between.
        ("ACTIVE", WAITED_FOR, [DECLINED, WAITING]),
        ("COMPENSATING", WAITED_FOR, []),
        # Cancelled, or past the deadline.
        ("ACTIVE", ON_REQUEST, [CANCELLED, UNDOING]),
        ("ACTIVE", replace(NOTHING_DONE, failed_job_id="", reason="cancelled"), [CANCELLED]),
        ("ACTIVE", LATE, [EXPIRED, UNDOING]),
    ],
)
def test_the_events_since_a_status(
    before: str, state: GroupState, events: list[ResourceEvent]
) -> None:
    assert events_since({"state": before}, state, NAMES) == events


def test_a_change_after_the_end_is_one_event() -> None:
    counts = {"total": 2, "completed": 1, "failed": 1}
    status = {"state": "FAILED_COMPENSATION", "compensation": counts}
    assert events_since(status, HALF_UNDONE, NAMES) == []
    mended = replace(HALF_UNDONE, undone_count=2, undo_failed_count=0)
    late = "a job or undo finished after its group had ended: failed, 2 of 2 undone"
    assert events_since(status, mended, NAMES) == [
        ResourceEvent("Warning", "LateChange", late, late)
    ]
    assert events_since({"state": "FAILED"}, NOTHING_DONE, NAMES) == []
    again = replace(HALF_UNDONE, undone_count=0, undo_failed_count=2)
    (event,) = events_since(status, again, NAMES, {"g-1-undo": CLOSED})
    assert event.message.endswith(
        "refund in q:compensation failed after 3 attempts: bank closed; and 1 more"
    )


def test_the_event_of_waiting_jobs_is_posted_once() -> None:
    (event,) = events_of_waiting_jobs({}, {"mail": 2, "stock": 1})
    assert event.message.startswith("2 jobs wait in mail, 1 in stock; no worker")
    assert (event.kind, event.reason, event.which) == ("Warning", "NoWorker", "mail")
    reported = {"conditions": [{"type": "Ready", "reason": "NoWorker"}]}
    assert events_of_waiting_jobs(reported, {"mail": 1}) == []
    assert events_of_waiting_jobs({}, {}) == []


def test_the_event_of_a_failed_undo_names_it() -> None:
    (event,) = events_since({"state": "COMPENSATING"}, HALF_UNDONE, NAMES, {"g-1-undo": CLOSED})
    said = "refund in q:compensation failed after 3 attempts: bank closed"
    assert event == replace(BADLY, message=f"{BADLY.message}: {said}")


def test_a_job_without_a_name_is_named_by_its_id() -> None:
    assert (
        events_since({"state": "ACTIVE"}, GIVEN_UP, {})[0].message
        == 'job "g-1" failed: card declined'
    )


@pytest.mark.parametrize(
    "reason", ["x" * 1_000_000, "a\r\n\x00\x1b[2J\u202eb", "\ud800", "\N{PILE OF POO}" * 2_000]
)
def test_hostile_text_is_sanitized(reason: str) -> None:
    told = [
        *events_since({}, replace(UNDONE, reason=reason), {"g-1": reason[:253]}),
        *events_since({}, replace(UNDONE, reason=reason, failed_job_id=""), {}),
        *events_of_problem({}, Problem("InvalidSpec", reason)),
    ]
    for each in told:
        assert each.message.isprintable()
        assert len(each.message.encode()) <= MAX_REASON
        assert to_kubernetes_event(each, BODY, 0)["message"] == each.message


@pytest.mark.parametrize("said", ["Group must contain at least one job", "a\nb", "x" * 2_000])
def test_a_stalled_problem_is_one_warning(said: str) -> None:
    problem, told = Problem("InvalidSpec", said), sanitize(said)
    assert events_of_problem({}, problem) == [ResourceEvent("Warning", "InvalidSpec", told, told)]
    status = derive_status(1, {}, 0, problem=problem)
    assert events_of_problem(status, problem) == []
    assert events_of_problem(status, replace(problem, message="another"))
    assert events_of_problem(status, replace(problem, reason="Another"))


def test_a_transient_problem_is_no_event() -> None:
    assert events_of_problem({}, Problem("RedisUnavailable", "refused", stalled=False)) == []


BODY: dict[str, Any] = {
    "apiVersion": "jobgroups.dev/v1alpha1",
    "kind": "JobGroup",
    "metadata": {"uid": "u1", "name": "order", "namespace": "shop", "resourceVersion": "42"},
}


def body(**meta: str) -> dict[str, Any]:
    return {**BODY, "metadata": {**BODY["metadata"], **meta}}


def test_an_event_is_about_its_object() -> None:
    event = to_kubernetes_event(DECLINED, BODY, 1_700_000_000_000)
    name = event["metadata"].pop("name")
    assert re.fullmatch(r"order\.[0-9a-f]{16}", name)
    assert event == {
        "metadata": {"namespace": "shop"},
        "involvedObject": {
            "apiVersion": "jobgroups.dev/v1alpha1",
            "kind": "JobGroup",
            "namespace": "shop",
            "name": "order",
            "uid": "u1",
            "resourceVersion": "42",
        },
        "type": "Warning",
        "reason": "Failed",
        "message": 'job "charge" failed: card declined',
        "source": {"component": "jobgroup-operator"},
        "reportingComponent": "jobgroup-operator",
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "count": 1,
    }


@pytest.mark.parametrize(
    ("event", "about", "same"),
    [
        (DECLINED, BODY, True),
        (DECLINED, body(resourceVersion="43"), True),
        (DECLINED, body(uid="u2"), False),
        (replace(DECLINED, reason="Other"), BODY, False),
        (replace(DECLINED, message="counts went on"), BODY, True),
        (replace(DECLINED, which="another"), BODY, False),
    ],
)
def test_the_same_event_has_the_same_name(
    event: ResourceEvent, about: dict[str, Any], same: bool
) -> None:
    names = [to_kubernetes_event(DECLINED, BODY, 1)["metadata"]["name"]]
    names.append(to_kubernetes_event(event, about, 2)["metadata"]["name"])
    assert (len(set(names)) == 1) is same


@pytest.mark.parametrize(
    "name", ["a", "a" * 253, "a" * 199 + "." + "b" * 53, "a" * 198 + "--" + "b" * 53]
)
def test_the_name_of_an_event_is_valid(name: str) -> None:
    part = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    event = to_kubernetes_event(DECLINED, body(name=name), 0)
    assert re.fullmatch(rf"{part}(\.{part})*", event["metadata"]["name"])
    assert len(event["metadata"]["name"]) <= 253
