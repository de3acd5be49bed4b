"""The fields of a JobGroup's status in each state, and its size."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from jobgroup.model.names import undo_id
from jobgroup.model.snapshot import GroupJob, GroupState, JobFailure, JobStatus, UndoStatus
from jobgroup.resource.conditions import Problem, to_rfc3339
from jobgroup.resource.status import (
    MAX_FAILURES,
    derive_status,
    end_message,
    failure_message,
    skipped_state,
    with_reported,
)
from tests.builders import group
from tests.jobgroup.resource.statuses import (
    AWAY,
    CANCELLED,
    COMPENSATING,
    COMPLETED,
    FAILED,
    HALF_UNDONE,
    HOSTILE,
    INVALID,
    LOST,
    NAMES,
    NOW,
    SUSPENDED,
    derive,
    is_harmless,
    job,
    kstatus,
)


def test_the_status_without_a_group() -> None:
    condition = {
        "reason": "Pending",
        "message": "the group has not been created yet",
        "observedGeneration": 1,
        "lastTransitionTime": "2023-11-14T22:13:20Z",
    }
    assert derive() == {
        "state": "PENDING",
        "progress": "",
        "observedGeneration": 1,
        "conditions": [
            {"type": "Ready", "status": "False", **condition},
            {"type": "Reconciling", "status": "True", **condition},
            {"type": "Finished", "status": "False", **condition},
        ],
    }


FAILURES = {
    "g-1": JobFailure("g-1", "charge", "q", 1, "declined"),
    "g-2-undo": JobFailure("g-2-undo", "recall", "q:compensation", 3, "out of reach"),
}


def test_the_status_of_a_group_has_every_field() -> None:
    lines = [
        job(0, "completed", "completed"),
        job(1, "failed"),
        job(2, "completed", "failed"),
        job(3, "cancelled"),
    ]
    status = derive_status(7, {}, NOW, HALF_UNDONE, lines, NAMES, failures=FAILURES)
    conditions = status.pop("conditions")
    assert [(each["type"], each["status"], each["reason"]) for each in conditions] == [
        ("Ready", "False", "CompensationFailed"),
        ("Stalled", "True", "CompensationFailed"),
        ("Finished", "True", "CompensationFailed"),
        ("Succeeded", "False", "CompensationFailed"),
        ("Compensated", "False", "CompensationFailed"),
    ]
    end = (
        "failed, 1 of 2 undone, 1 could not be undone:"
        " recall in q:compensation failed after 3 attempts: out of reach"
    )
    assert {each["message"] for each in conditions} == {end, "1 of 2 undone"}
    line = {"queueName": "q"}
    declined = {"name": "charge", **line, "attemptsMade": 1, "reason": "declined"}
    recall = {"name": "recall", "queueName": "q:compensation", "attemptsMade": 3}
    assert status == {
        "groupId": "g",
        "state": "FAILED_COMPENSATION",
        "progress": "2/4",
        "undone": "1/2",
        "totalJobs": 4,
        "completedCount": 2,
        "failedCount": 1,
        "cancelledCount": 1,
        "compensation": {"total": 2, "completed": 1, "failed": 1},
        "failure": {
            "jobName": "charge",
            "jobId": "g-1",
            "reason": "card declined",
            "attemptsMade": 3,
        },
        "jobs": [
            {
                **line,
                "name": "charge",
                "jobId": "g-1",
                "status": "failed",
                "failure": declined,
            },
            {
                **line,
                "name": "ship",
                "jobId": "g-2",
                "status": "completed",
                "undo": "failed",
                "undoFailure": {**recall, "reason": "out of reach"},
            },
            {**line, "name": "reserve", "jobId": "g-0", "status": "completed", "undo": "completed"},
            {**line, "name": "mail", "jobId": "g-3", "status": "cancelled"},
        ],
        "events": [
            {"time": "1970-01-01T00:00:01Z", "type": "Created", "message": "4 jobs created"},
            {
                "time": "1970-01-01T00:00:03Z",
                "type": "Failing",
                "message": 'job "charge" failed: card declined',
            },
            {
                "time": "1970-01-01T00:00:09Z",
                "type": "Ended",
                "message": end,
            },
        ],
        "startedAt": "1970-01-01T00:00:01Z",
        "finishedAt": "1970-01-01T00:00:09Z",
        "observedGeneration": 7,
    }


@pytest.mark.parametrize(
    ("state", "absent"),
    [
        (group(), {"finishedAt", "failure", "compensation", "undone", "jobsOmitted"}),
        (COMPENSATING, {"finishedAt", "jobsOmitted"}),
        (COMPLETED, {"failure", "compensation", "undone", "jobsOmitted"}),
        (group("FAILED", reason="cancelled", failed_at=3_000, finished_at=9_000), {"undone"}),
    ],
)
def test_fields_of_events_that_did_not_happen_are_absent(
    state: GroupState, absent: set[str]
) -> None:
    # Even if the previous status had them: the object may have been copied from another.
    assert not derive(state, derive(HALF_UNDONE)).keys() & absent


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (COMPENSATING, 'job "charge" failed: card declined'),
        (replace(COMPENSATING, failed_job_id="g-9"), 'job "g-9" failed: card declined'),
        (group("FAILED", reason="cancelled"), "a cancellation was requested"),
        (group("FAILED", reason="DeadlineExceeded"), "spec.activeDeadlineSeconds passed"),
    ],
)
def test_the_failure_message(state: GroupState, sentence: str) -> None:
    assert failure_message(state, NAMES) == sentence


def undo_failure(n: int, **fields: Any) -> JobFailure:
    failure = JobFailure(f"g-{n}-undo", "recall", "q:compensation", 1, f"reason {n}")
    return replace(failure, **fields)


@pytest.mark.parametrize(
    ("failures", "named"),
    [
        ([], ""),
        ([undo_failure(0, attempts_made=2)], ": recall in q:compensation failed after 2 attempts"),
        # Its name and attempts are unknown if its queue no longer has it.
        ([undo_failure(0, name="", attempts_made=0)], ": g-0-undo in q:compensation failed: "),
        ([undo_failure(n) for n in range(2)], "reason 1; and 3 more"),
        ([undo_failure(n) for n in range(5)], "reason 2; and 2 more"),
    ],
)
def test_the_message_names_the_undos_that_failed(failures: list[JobFailure], named: str) -> None:
    known = {"g-1": FAILURES["g-1"], **{each.job_id: each for each in failures}}
    ended = replace(HALF_UNDONE, undo_count=6, undo_failed_count=5)
    message = end_message(ended, known)
    assert message.startswith("failed, 1 of 6 undone, 5 could not be undone" + ":" * bool(failures))
    assert named in message
    assert "declined" not in message
    running = derive_status(1, {}, NOW, replace(ended, state="COMPENSATING"), failures=known)
    assert running["conditions"][0]["message"] == "compensating" + message.removeprefix("failed")


def test_a_failure_stays_in_the_status_after_its_job_was_removed() -> None:
    jobs = [job(1, "failed"), job(2, "completed", "failed")]
    before = derive_status(1, {}, NOW, HALF_UNDONE, jobs, NAMES, failures=FAILURES)
    gone = {
        its_id: replace(each, name="", attempts_made=0, reason="unknown")
        for its_id, each in FAILURES.items()
    }
    assert with_reported(gone, {}) == gone
    assert with_reported(gone, before) == FAILURES
    retried = {**FAILURES, "g-1": replace(FAILURES["g-1"], reason="declined again")}
    assert with_reported(retried, before) == retried


@pytest.mark.parametrize("ended", [COMPLETED, FAILED, HALF_UNDONE])
def test_a_terminal_status_does_not_change(ended: GroupState) -> None:
    """Nothing is written if Redis is unavailable or has lost the group."""
    before = derive(ended)
    assert derive(None, before, AWAY, NOW + 5_000) == before
    assert derive(None, before, AWAY, NOW + 5_000, generation=2) == before
    assert derive(None, before, None, NOW + 5_000) == before
    seen = derive(None, before, None, NOW + 5_000, generation=2)
    assert kstatus(seen, generation=2) == kstatus(before)
    assert {each["observedGeneration"] for each in [seen, *seen["conditions"]]} == {2}
    times = [each["lastTransitionTime"] for each in before["conditions"]]
    assert [each["lastTransitionTime"] for each in seen["conditions"]] == times


def test_a_group_cancelled_before_creation_keeps_its_finish_time() -> None:
    first = derive(None, {**derive(problem=SUSPENDED), "state": "FAILED"}, CANCELLED)
    assert first["finishedAt"] == to_rfc3339(NOW)
    again = derive(None, {**first, "state": "FAILED"}, CANCELLED, NOW + 60_000)
    assert again == first


@pytest.mark.parametrize("problem", [None, AWAY, INVALID, LOST, SUSPENDED])
@pytest.mark.parametrize(
    "state", [None, group(), COMPENSATING, COMPLETED, FAILED, HALF_UNDONE], ids=str
)
def test_the_same_group_has_the_same_status_later(
    state: GroupState | None, problem: Problem | None
) -> None:
    first = derive(state, problem=problem)
    assert derive(state, first, problem, NOW + 3_600_000) == first
    # As the API server returns it.
    assert derive(state, json.loads(json.dumps(first)), problem, NOW + 3_600_000) == first


def test_failed_and_active_jobs_are_listed_first() -> None:
    jobs = [
        *(job(n, "completed") for n in range(150)),
        job(150, "cancelled"),
        job(151, "pending"),
        job(152, "completed", "pending"),
        job(153, "active"),
        job(154, "completed", "failed"),
        job(155, "failed"),
        job(156, "completed", "completed"),
    ]
    status = derive_status(1, {}, NOW, COMPENSATING, jobs, {})
    ids = [line["jobId"] for line in status["jobs"]]
    assert ids[:6] == ["g-154", "g-155", "g-153", "g-152", "g-151", "g-0"]
    assert (len(ids), status["jobsOmitted"]) == (100, 57)


def test_every_job_and_undo_status_has_a_rank() -> None:
    jobs = [
        job(n, status, undo)
        for n, (status, undo) in enumerate(
            (status, undo) for status in get_args(JobStatus) for undo in get_args(UndoStatus)
        )
    ]
    assert len(derive_status(1, {}, NOW, COMPENSATING, jobs, {})["jobs"]) == len(jobs)


@pytest.mark.parametrize(("count", "omitted"), [(100, None), (101, 1)])
def test_the_status_counts_omitted_jobs(count: int, omitted: int | None) -> None:
    status = derive_status(1, {}, NOW, group(), [job(n) for n in range(count)], {})
    assert status.get("jobsOmitted") == omitted


@pytest.mark.parametrize(
    "char", ["a", "\u00e9", "\u20ac", "\N{PILE OF POO}", '"', "\x01", "\ud800"]
)
@pytest.mark.parametrize("reason", HOSTILE, ids=range(len(HOSTILE)))
def test_a_status_never_exceeds_64_kb(char: str, reason: str) -> None:
    uid = "0" * 128
    many = range(2_000)
    names = {f"{uid}-{n}": f"{n:04}{char * 249}" for n in many}
    jobs = [GroupJob(f"{uid}-{n}", "", "completed", "q" * 63, "completed") for n in many]
    state = replace(HALF_UNDONE, id=uid, total_jobs=2_000, failed_job_id=f"{uid}-7", reason=reason)
    failed = [replace(each, status="failed", undo="failed") for each in jobs]
    failures = {
        its_id: JobFailure(its_id, names[each.job_id], "q" * 75, 10**9, reason)
        for each in failed[:MAX_FAILURES]
        for its_id in (each.job_id, undo_id(each.job_id))
    }
    explained = derive_status(10**9, {}, NOW, state, failed, names, failures=failures)
    assert len(json.dumps(explained)) <= 65_536
    assert "undoFailure" in explained["jobs"][0]
    status = derive_status(10**9, {}, NOW, state, jobs, names)
    assert len(json.dumps(status)) <= 65_536
    assert status["jobsOmitted"] + len(status["jobs"]) == 2_000
    assert status["jobs"]
    running = derive_status(10**9, {}, NOW, replace(state, state="ACTIVE"), jobs, names)
    for problem in (Problem("RedisError", reason, stalled=False), Problem("InvalidSpec", reason)):
        assert len(json.dumps(derive_status(10**9, running, NOW, problem=problem))) <= 65_536


@pytest.mark.parametrize("reason", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_sanitized(reason: str) -> None:
    names = {"g-1": reason[:253]}
    told = derive_status(1, {}, NOW, replace(FAILED, reason=reason), [], names)
    undo = JobFailure("g-2-undo", reason[:253], "q:compensation", 1, reason)
    undos = derive_status(
        1,
        {},
        NOW,
        HALF_UNDONE,
        [job(2, "completed", "failed")],
        names,
        failures={"g-2-undo": undo},
    )
    assert is_harmless(undos["jobs"][0]["undoFailure"].get("reason", ""))
    given_up = derive(replace(FAILED, reason=reason, failed_job_id=""))
    problem = derive(problem=Problem("InvalidSpec", reason))
    assert is_harmless(told["failure"]["reason"])
    for status in (told, undos, given_up, problem):
        texts = [each["message"] for each in (*status.get("events", ()), *status["conditions"])]
        assert all(map(is_harmless, texts))
        assert len(status.get("events", ())) <= 10


@pytest.mark.parametrize("before", ["", "PENDING", "ACTIVE"])
@pytest.mark.parametrize(
    "counts",
    [
        {"undo_count": 2, "undone_count": 2},
        # It waited for an active job, which failed as well.
        {"failed_count": 2},
        # The completed job has no undo: failed and ended in one call.
        {"completed_count": 1, "finished_at": 3_000},
    ],
)
def test_a_skipped_compensation_is_found(before: str, counts: dict[str, int]) -> None:
    passed = skipped_state(
        before, group("FAILED", **{"failed_at": 3_000, "finished_at": 9_000, **counts})
    )
    assert passed is not None
    assert (passed.state, passed.finished_at, passed.undone_count) == ("COMPENSATING", None, 0)


UNDONE = group("FAILED", undo_count=1, undone_count=1, failed_at=3_000, finished_at=9_000)


@pytest.mark.parametrize(
    ("before", "state"),
    [
        ("COMPENSATING", UNDONE),
        ("FAILED", UNDONE),
        # Nothing to undo and nothing to wait for.
        ("ACTIVE", group("FAILED", failed_at=3_000, finished_at=3_000)),
        ("ACTIVE", group("COMPLETED", completed_count=4, finished_at=9_000)),
        ("ACTIVE", group("COMPENSATING", undo_count=1, failed_at=3_000)),
    ],
)
def test_no_other_state_is_skipped(before: str, state: GroupState) -> None:
    assert skipped_state(before, state) is None
