"""What the scripts return becomes values, and only values."""

import pytest

from jobgroup.snapshot import ENDED, GroupJob, GroupState, Settled

ROW = [
    *("g1", "order", "COMPENSATING", "1000", "2000", "7"),
    *("1", "2", "3", "9", "g1-2", "card declined", "", "1", "0", "0"),
    *("1500", "3", "headless"),
]


def test_a_group_is_read_in_the_order_of_its_row() -> None:
    assert GroupState.parse(ROW) == GroupState(
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


@pytest.mark.parametrize(
    ("state", "finished", "ended"),
    [
        ("ACTIVE", "", False),
        ("COMPENSATING", "", False),
        ("COMPLETED", "3000", True),
        ("FAILED", "3000", True),
        ("FAILED_COMPENSATION", "3000", True),
    ],
)
def test_a_group_has_ended_or_not(state: str, finished: str, ended: bool) -> None:
    group = GroupState.parse([*ROW[:2], state, *ROW[3:12], finished, *ROW[13:]])
    assert group.ended == ended == (state in ENDED)
    assert group.finished_at == (3000 if ended else None)


def test_a_row_that_is_too_short_is_no_group() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        GroupState.parse(ROW[:-1])


def test_jobs_come_in_the_order_of_the_definition() -> None:
    rows = []
    for n in (10, 2, 0):
        rows += [f"bull:q:g-1-{n}", "q", f"g-1-{n}", "pending", ""]
    assert [job.job_id for job in GroupJob.parse_all(rows)] == ["g-1-0", "g-1-2", "g-1-10"]
    assert GroupJob.parse_all([]) == []
    assert GroupJob.parse_all(rows[:5]) == [
        GroupJob(job_id="g-1-10", job_key="bull:q:g-1-10", status="pending", queue_name="q")
    ]


def test_a_settled_group_says_what_the_call_did() -> None:
    settled = Settled.parse([1, 0, 2, 1, "ACTIVE", 3, -1, ROW])
    assert (settled.changed, settled.more, settled.open, settled.repaired) == (True, False, 2, True)
    assert (settled.before, settled.undone, settled.undo_failed) == ("ACTIVE", 3, -1)
    assert settled.group == GroupState.parse(ROW)
