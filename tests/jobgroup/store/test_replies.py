"""Replies of scripts become values, by name."""

from json import dumps
from typing import Any

import pytest

from jobgroup.errors import CorruptKeyError
from jobgroup.model.backlog import Backlog
from jobgroup.model.snapshot import GroupJob, GroupState, Settled, Totals
from jobgroup.store.replies import read_jobs, read_value

GROUP: dict[str, Any] = {
    "id": "g1",
    "name": "order",
    "state": "COMPENSATING",
    "createdAt": "1000",
    "updatedAt": "2000",
    "totalJobs": "7",
    "cancelledCount": "3",
    "revision": "9",
    "failedJobId": "g1-2",
    "reason": "card declined",
    "undoCount": "1",
    "failedAt": "1500",
    "failedAttempts": "3",
    "completedCount": 1,
    "failedCount": 2,
    "undoneCount": 0,
    "undoFailedCount": 0,
    "owner": "headless",
}
COLUMNS = ["jobKey", "queueName", "jobId", "status", "undo"]


def columns(*rows: tuple[str, ...], of: list[str] = COLUMNS) -> str:
    return dumps({name: [row[n] for row in rows] for n, name in enumerate(of)})


def read_snapshot(reply: str) -> GroupState:
    return read_value(GroupState, "Group g1", reply)


def test_a_group_is_read_by_name() -> None:
    expected = GroupState(
        id="g1",
        name="order",
        state="COMPENSATING",
        created_at=1000,
        updated_at=2000,
        total_jobs=7,
        completed_count=1,
        failed_count=2,
        cancelled_count=3,
        revision=9,
        failed_job_id="g1-2",
        reason="card declined",
        finished_at=None,
        undo_count=1,
        undone_count=0,
        undo_failed_count=0,
        failed_at=1500,
        failed_attempts=3,
        owner="headless",
    )
    assert read_snapshot(dumps(GROUP)) == expected
    assert read_snapshot(dumps(dict(reversed(GROUP.items())))) == expected


def test_an_unknown_name_is_ignored() -> None:
    newer = {"priority": "high", **GROUP}
    assert read_snapshot(dumps(newer)) == read_snapshot(dumps(GROUP))


def test_a_field_with_a_default_may_be_missing() -> None:
    optional = {"failedJobId", "reason", "undoCount", "failedAt", "failedAttempts"}
    group = read_snapshot(dumps({k: v for k, v in GROUP.items() if k not in optional}))
    assert (group.failed_job_id, group.reason, group.failed_at) == ("", "", None)
    assert (group.undo_count, group.failed_attempts, group.finished_at) == (0, 0, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"undoFailedCount": None}, "Group g1 cannot be read: field undoFailedCount is missing"),
        ({"owner": None}, "Group g1 cannot be read: field owner is missing"),
        ({"totalJobs": "many"}, "Group g1 cannot be read: field totalJobs is 'many'"),
        ({"failedAt": ""}, "Group g1 cannot be read: field failedAt is ''"),
    ],
)
def test_a_reply_that_does_not_fit_names_the_group_and_the_field(
    change: dict[str, Any], message: str
) -> None:
    changed = {**GROUP, **change}
    missing = {name: value for name, value in changed.items() if value is not None}
    for reply in (changed, missing):
        with pytest.raises(CorruptKeyError) as caught:
            read_snapshot(dumps(reply))
        assert str(caught.value) == message


def test_jobs_are_read_in_the_order_of_the_definition() -> None:
    rows = [(f"bull:q:g-1-{n}", "q", f"g-1-{n}", "pending", "") for n in (10, 2, 0)]
    jobs = read_jobs("g-1", columns(*rows))
    assert [job.job_id for job in jobs] == ["g-1-0", "g-1-2", "g-1-10"]
    assert jobs[-1] == GroupJob("g-1-10", "bull:q:g-1-10", "pending", "q")


def test_a_group_without_jobs_is_read() -> None:
    # Lua writes an empty list as {}.
    assert read_jobs("g", dumps({name: {} for name in COLUMNS})) == []


def test_unknown_columns_are_ignored() -> None:
    reply = columns(
        ("x", "active", "g-0", "k", "q"), of=["extra", "status", "jobId", "jobKey", "queueName"]
    )
    assert read_jobs("g", reply) == [GroupJob("g-0", "k", "active", "q")]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (columns(("k", "q"), of=COLUMNS[:2]), "field jobId is missing"),
        (columns(("k", "q", "stranger", "pending", "")), "invalid literal"),
    ],
)
def test_jobs_that_do_not_fit_name_the_group(reply: str, reason: str) -> None:
    with pytest.raises(CorruptKeyError, match=f"The jobs of group g cannot be read: {reason}"):
        read_jobs("g", reply)


def test_a_settled_group_holds_its_group() -> None:
    reply = {"state": "FAILED", "entered": ["FAILED"], "changed": True, "failedQueues": ["q"]}
    settled = read_value(Settled, "Group g1", dumps({**reply, "group": GROUP}))
    group = read_snapshot(dumps(GROUP))
    assert settled == Settled(
        state="FAILED", entered=("FAILED",), changed=True, failed_queues=("q",), group=group
    )


def test_a_settled_group_may_have_entered_no_state() -> None:
    # Lua writes an empty list as {}.
    reply = {"state": "ACTIVE", "entered": {}, "changed": False}
    settled = read_value(Settled, "Group g1", dumps(reply))
    assert settled == Settled(state="ACTIVE", entered=(), changed=False)


def test_an_error_inside_a_settled_group_names_the_inner_field() -> None:
    reply = dumps(
        {"state": "ACTIVE", "entered": {}, "changed": True, "group": {**GROUP, "revision": "x"}}
    )
    with pytest.raises(CorruptKeyError, match="Group g1 cannot be read: field revision is 'x'"):
        read_value(Settled, "Group g1", reply)


def test_totals_hold_a_number_for_each_state() -> None:
    groups = {"ACTIVE": 3, "FAILED": 0}
    reply = {"wakeups": 1, "waited": 2, "groups": groups, "oldest": {"ACTIVE": "4"}}
    expected = Totals({"ACTIVE": 3, "FAILED": 0}, {"ACTIVE": 4}, 1, 2)
    assert read_value(Totals, "totals", dumps(reply)) == expected


def test_a_backlog_may_have_no_next_job() -> None:
    reply = {"known": True, "paused": True, "waiting": 3, "prioritized": 4, "active": 5}
    reply |= {"delayed": 6, "due": 1, "event": "1-1"}  # type: ignore[dict-item]
    backlog = Backlog(True, True, 3, 4, 5, 6, 1, None, "1-1")
    assert read_value(Backlog, "Queue q", dumps(reply)) == backlog
    later = dumps({**reply, "nextIn": 70_000})
    assert read_value(Backlog, "Queue q", later).next_in == 70_000
