"""Recorded requests as lines of the status and as Events."""

from dataclasses import replace

import pytest

from jobgroup.model.snapshot import GroupState, Record
from jobgroup.resource.events import events_since
from jobgroup.resource.requests import MAX_REQUESTS, requests_of
from jobgroup.resource.status import derive_status
from tests.builders import group

NAMES = {"g-0": "charge"}
RETRIED = Record("retryUndos", 5_000, "ann")
RESOLVED = Record("resolve", 6_000, "ann", "g-0", "refunded by hand, ticket 4711")


@pytest.mark.parametrize(
    ("record", "reason", "message"),
    [
        (RETRIED, "UndosRetried", "the failed undos were retried by ann"),
        (
            Record("retryUndos", 5_000, job="g-0"),
            "UndosRetried",
            'the failed undos of the job "charge" were retried',
        ),
        (
            RESOLVED,
            "UndoResolved",
            'the undo of the job "charge" was resolved by ann: refunded by hand, ticket 4711',
        ),
        (
            Record("complete", 7_000, "ann", "g-0"),
            "JobAnswered",
            'the job "charge" was completed without a worker by ann',
        ),
        (
            Record("fail", 7_000, "ann", "g-7", "declined\n"),
            "JobAnswered",
            'the job "g-7" was failed without a worker by ann: declined ',
        ),
    ],
)
def test_a_request_is_a_sentence(record: Record, reason: str, message: str) -> None:
    (request,) = requests_of(group(records=(record,)), NAMES)
    assert (request.at, request.reason, request.message) == (record.at, reason, message)


def test_the_jobgroup_of_a_group_is_not_named_as_its_requester() -> None:
    own = group(resource="shop/order-1", records=(replace(RETRIED, by="shop/order-1"),))
    (request,) = requests_of(own, NAMES)
    assert request.message == "the failed undos were retried"


def test_the_verbs_of_a_newer_release_are_left_out() -> None:
    assert requests_of(group(records=(Record("bless", 1_000),)), NAMES) == []


def test_a_status_has_the_latest_requests_in_the_order_of_time() -> None:
    many = tuple(Record("retryUndos", 1_000 * n, f"ann-{n}") for n in range(2, 12))
    status = derive_status(1, {}, 0, group(created_at=1_000, records=many), names=NAMES)
    lines = [(each["type"], each["time"]) for each in status["events"]]
    assert lines[0] == ("Created", "1970-01-01T00:00:01Z")
    assert [kind for kind, _ in lines[1:]] == ["UndosRetried"] * MAX_REQUESTS
    assert [time for _, time in lines] == sorted(time for _, time in lines)
    assert status["events"][-1]["message"].endswith("ann-11")


@pytest.mark.parametrize("state", ["ACTIVE", "COMPLETED", "FAILED_COMPENSATION"])
def test_each_request_has_one_event(state: str) -> None:
    before = group(state)
    told = derive_status(1, {}, 0, before, names=NAMES)
    after = replace(before, records=(RETRIED, RESOLVED))
    events = events_since(told, after, NAMES)
    assert [each.reason for each in events] == ["UndosRetried", "UndoResolved"]
    assert events[1].job == "charge"
    assert events_since(derive_status(1, told, 0, after, names=NAMES), after, NAMES) == []


def cancelled(by: str) -> GroupState:
    return group(
        "FAILED",
        failed_at=2_000,
        finished_at=2_000,
        reason="cancelled",
        resource="shop/order-1",
        records=(Record("cancel", 2_000, by),),
    )


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("ann", "a cancellation was requested by ann"),
        ("shop/order-1", "a cancellation was requested"),
        ("", "a cancellation was requested"),
    ],
)
def test_the_failure_names_who_cancelled_the_group(by: str, message: str) -> None:
    status = derive_status(1, {}, 0, cancelled(by))
    assert [each["message"] for each in status["events"] if each["type"] == "Failing"] == [message]
    (event,) = [each for each in events_since({}, cancelled(by), {}) if each.reason == "Cancelled"]
    assert event.message == message
