"""Groups and jobs as text and as fields."""

from dataclasses import replace

import pytest

from jobgroup.cli.output import (
    failure_lines,
    group_fields,
    group_line,
    group_listing,
    job_fields,
    live_line,
    table,
)
from jobgroup.model.snapshot import GroupJob, GroupState, JobDetails, JobFailure, Record
from jobgroup.model.text import time_of
from tests.builders import group

PAID = GroupJob("g-0", "bull:payments:g-0", "completed", "payments", "pending")


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (group(), "g order ACTIVE: 0/4 completed"),
        (group("COMPLETED", completed_count=4), "g order COMPLETED: 4/4 completed"),
        (group(resource="shop/order-1"), "g shop/order-1 ACTIVE: 0/4 completed"),
        (
            group(
                "COMPENSATING",
                completed_count=2,
                failed_count=1,
                cancelled_count=1,
                undo_count=2,
                undone_count=1,
                failed_job_id="g-1",
                reason="empty",
            ),
            "g order COMPENSATING: 2/4 completed, 1 failed, 1 cancelled, 1/2 undone (g-1: empty)",
        ),
        (
            group("FAILED_COMPENSATION", undo_count=2, undone_count=1, undo_failed_count=1),
            "g order FAILED_COMPENSATION: 0/4 completed, 1/2 undone, 1 not undone",
        ),
        (
            group("FAILED", cancelled_count=4, reason="cancelled"),
            "g order FAILED: 0/4 completed, 4 cancelled (a cancellation was requested)",
        ),
        (
            group("FAILED", failed_job_id="g-0", reason="a\nb\033[2J\u202e"),
            "g order FAILED: 0/4 completed (g-0: a b [2J )",
        ),
    ],
)
def test_the_line_of_a_group(state: GroupState, line: str) -> None:
    assert group_line(state) == line


def test_a_live_line_has_a_bar_and_fits_the_terminal() -> None:
    half = group(completed_count=2)
    assert live_line(half, 80) == "[##########..........] g order ACTIVE: 2/4 completed"
    assert live_line(half, 10) == "[########"
    assert live_line(half, 0) == ""


def test_the_bar_shows_the_undos_while_compensating() -> None:
    undoing = group("COMPENSATING", completed_count=4, undo_count=4, undone_count=1)
    assert live_line(undoing, 80).startswith("[#####...............] ")


def test_fields_are_named_as_in_redis_and_times_are_readable() -> None:
    fields = group_fields(group(finished_at=None))
    assert fields["createdAt"] == "1970-01-01T00:00:01.000Z"
    assert fields["updatedAt"] == "1970-01-01T00:00:02.500Z"
    assert fields["finishedAt"] is None
    assert (fields["totalJobs"], fields["undoFailedCount"]) == (4, 0)


def test_a_listing_has_every_field_on_a_line_of_its_own() -> None:
    state = group(reason="two\nlines")
    lines = group_listing(state).splitlines()
    # Most groups do not have these.
    unusual = {"records", "compensatingAt", "retries", "resolvedCount", "attempt"}
    fields = [field for field in group_fields(state) if field not in unusual]
    assert [line.split()[0] for line in lines] == fields
    again = group_listing(replace(state, attempt=2, retries=1)).splitlines()
    assert len(again) == len(lines) + 2
    assert "reason           two lines" in lines
    assert "finishedAt       -" in lines


def test_a_listing_ends_with_the_recorded_requests() -> None:
    records = (Record("cancel", 1_000, "ann"), Record("resolve", 2_000, "", "g-0", "by\nhand"))
    assert group_listing(group(records=records)).splitlines()[-2:] == [
        "1970-01-01T00:00:01.000Z cancel by ann",
        "1970-01-01T00:00:02.000Z resolve g-0: by hand",
    ]
    assert group_fields(group(records=records))["records"][0] == {
        "verb": "cancel",
        "at": "1970-01-01T00:00:01.000Z",
        "by": "ann",
        "job": "",
        "reason": "",
    }


def test_a_listing_shows_why_a_job_of_on_end_is_missing() -> None:
    lines = group_listing(group(on_end_error="job g-end-0-1 for the queue x: WRONGTYPE"))
    shown = [" ".join(line.split()) for line in lines.splitlines()]
    assert "onEndError job g-end-0-1 for the queue x: WRONGTYPE" in shown


def test_a_table_has_a_column_for_every_field() -> None:
    rows = [
        job_fields(JobDetails(PAID, "charge")),
        job_fields(JobDetails(GroupJob("g-10", "bull:q:g-10", "active", "q"), "")),
    ]
    assert table(rows).splitlines() == [
        "jobId  name    queueName  status     undo     jobKey",
        "g-0    charge  payments   completed  pending  bull:payments:g-0",
        "g-10   -       q          active     -        bull:q:g-10",
    ]


@pytest.mark.parametrize(
    ("attempts", "text"), [(0, ""), (1, " after 1 attempt"), (3, " after 3 attempts")]
)
def test_a_failure_without_known_attempts_mentions_none(attempts: int, text: str) -> None:
    failure = JobFailure("g-0", "charge", "payments", attempts, "card\ndeclined")
    failed = JobDetails(replace(PAID, status="failed", undo=""), "charge", failure)
    assert failure_lines([failed]) == [f"g-0 charge in payments failed{text}: card declined"]


def test_failures_that_were_not_read_are_counted() -> None:
    failure = JobFailure("g-0-undo", "", "payments:compensation", 0, "r" * 5000)
    undone = JobDetails(replace(PAID, undo="failed"), "charge", None, failure)
    unread = JobDetails(replace(PAID, status="failed", undo="failed"), "charge")
    assert failure_lines([undone, unread]) == [
        f"g-0-undo in payments:compensation failed: {'r' * 1024}",
        "2 more failures are not listed",
    ]
    assert failure_lines([JobDetails(PAID, "charge")]) == []


def test_times_are_in_utc() -> None:
    assert time_of(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
