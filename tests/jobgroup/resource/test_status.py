"""What stands in a status in each state, how machines read it, and how large it can get."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest

from jobgroup.conditions import MAX_REASON, Trouble, clean, seconds
from jobgroup.decisions import TROUBLES, Step
from jobgroup.snapshot import GroupJob, GroupState, JobStatus, UndoStatus
from jobgroup.status import derive_status, ending, skipped, why
from tests.builders import group

NOW = 1_700_000_000_000
NAMES = {"g-0": "reserve", "g-1": "charge", "g-2": "ship", "g-3": "mail"}
# What the API server gives an object that nobody has looked at.
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

INVALID = Trouble("InvalidSpec", "Group must contain at least one job")
AWAY = Trouble("RedisUnavailable", "Connection refused", stalled=False)
SUSPENDED, CANCELLED, LOST = (
    TROUBLES[step] for step in (Step.SUSPENDED, Step.CANCELLED, Step.LOST)
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
    trouble: Trouble | None = None,
    now: int = NOW,
    generation: int = 1,
) -> dict[str, Any]:
    jobs = [job(n) for n in range(4)] if state else []
    return derive_status(generation, previous, now, state, jobs, NAMES, trouble)


def said(status: Mapping[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def kstatus(status: Mapping[str, Any], generation: int = 1, deleting: bool = False) -> str:
    """Read an object as kstatus does, and with it the tools that apply and wait."""
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
    """Say whether a text is one printable line of valid UTF-8, not too long."""
    return text.isprintable() and len(text.encode()) <= MAX_REASON


READINGS: list[tuple[str, dict[str, Any], str]] = [
    ("unseen", dict(UNSEEN), "InProgress"),
    ("pending", derive(), "InProgress"),
    ("active", derive(group()), "InProgress"),
    ("compensating", derive(COMPENSATING), "InProgress"),
    ("suspended", derive(trouble=SUSPENDED), "InProgress"),
    ("completed", derive(COMPLETED), "Current"),
    ("failed", derive(FAILED), "Failed"),
    ("failed, nothing to undo", derive(group("FAILED", finished_at=9_000)), "Failed"),
    ("compensation failed", derive(HALF_UNDONE), "Failed"),
    ("invalid", derive(trouble=INVALID), "Failed"),
    ("cancelled before creation", derive(None, {"state": "FAILED"}, CANCELLED), "Failed"),
    ("lost", derive(None, derive(group()), LOST), "Failed"),
    ("lost while undoing", derive(None, derive(COMPENSATING), LOST), "Failed"),
    ("redis away before creation", derive(trouble=AWAY), "InProgress"),
    ("redis away while active", derive(None, derive(group()), AWAY), "InProgress"),
    ("redis away while undoing", derive(None, derive(COMPENSATING), AWAY), "InProgress"),
    ("redis away after completion", derive(None, derive(COMPLETED), AWAY), "Current"),
    ("redis away after failure", derive(None, derive(FAILED), AWAY), "Failed"),
    ("completed, group gone", derive(None, derive(COMPLETED)), "Current"),
]


@pytest.mark.parametrize(
    ("status", "reading"), [row[1:] for row in READINGS], ids=[row[0] for row in READINGS]
)
def test_kstatus_reads_each_state_as_meant(status: dict[str, Any], reading: str) -> None:
    assert kstatus(status) == reading
    assert kstatus(status, deleting=True) == "Terminating"
    assert kstatus(status, generation=2) == "InProgress"


SEEN = READINGS[1:]


@pytest.mark.parametrize("status", [row[1] for row in SEEN], ids=[row[0] for row in SEEN])
def test_conditions_never_contradict_each_other(status: dict[str, Any]) -> None:
    conditions = said(status)
    assert len(conditions) == len(status["conditions"])
    assert [conditions.get(kind) for kind in ("Ready", "Stalled", "Reconciling")].count("True") == 1
    assert conditions["Finished"] == ("True" if "finishedAt" in status else "False")
    assert ("Succeeded" in conditions) == (conditions["Finished"] == "True")
    for each in status["conditions"]:
        assert each["reason"].isalpha()
        assert each["message"]
        assert each["observedGeneration"] == status["observedGeneration"] == 1


PEOPLE = ("Finished", "Succeeded", "Compensated")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (derive(), ("False", None, None)),
        (derive(group()), ("False", None, None)),
        (derive(COMPENSATING), ("False", None, "False")),
        # All undone so far, but a member is still active and may complete.
        (derive(replace(COMPENSATING, undone_count=2)), ("False", None, "False")),
        (derive(COMPLETED), ("True", "True", None)),
        (derive(FAILED), ("True", "False", "True")),
        (derive(group("FAILED", finished_at=9_000)), ("True", "False", "True")),
        (derive(HALF_UNDONE), ("True", "False", "False")),
        # A job that was retried by hand completed late; its undo is not done yet.
        (derive(replace(FAILED, undo_count=3)), ("True", "False", "False")),
        (derive(None, {"state": "FAILED"}, CANCELLED), ("True", "False", None)),
        (derive(None, derive(COMPENSATING), AWAY), ("False", None, "False")),
        (derive(None, derive(COMPENSATING), LOST), ("False", None, "False")),
    ],
)
def test_people_are_told_the_truth(
    status: dict[str, Any], expected: tuple[str | None, ...]
) -> None:
    assert tuple(said(status).get(kind) for kind in PEOPLE) == expected


def test_before_there_is_a_group_there_is_little_to_say() -> None:
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


def test_a_status_says_all_that_is_known() -> None:
    lines = [
        job(0, "completed", "completed"),
        job(1, "failed"),
        job(2, "completed", "failed"),
        job(3, "cancelled"),
    ]
    status = derive_status(7, {}, NOW, HALF_UNDONE, lines, NAMES)
    conditions = status.pop("conditions")
    assert [(each["type"], each["status"], each["reason"]) for each in conditions] == [
        ("Ready", "False", "CompensationFailed"),
        ("Stalled", "True", "CompensationFailed"),
        ("Finished", "True", "CompensationFailed"),
        ("Succeeded", "False", "CompensationFailed"),
        ("Compensated", "False", "CompensationFailed"),
    ]
    assert {each["message"] for each in conditions} == {
        "failed, 1 of 2 undone, the rest could not be",
        "1 of 2 undone",
    }
    line = {"queueName": "q"}
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
            {**line, "name": "charge", "jobId": "g-1", "status": "failed"},
            {**line, "name": "ship", "jobId": "g-2", "status": "completed", "undo": "failed"},
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
                "message": "failed, 1 of 2 undone, the rest could not be",
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
def test_what_has_not_happened_does_not_stand_there(state: GroupState, absent: set[str]) -> None:
    # Not even if it stood there before: the object may have been brought along from elsewhere.
    assert not derive(state, derive(HALF_UNDONE)).keys() & absent


@pytest.mark.parametrize(
    ("state", "reason", "message"),
    [
        (group(completed_count=1), "Running", "1 of 4 jobs completed"),
        (COMPENSATING, "Compensating", "given up, 1 of 2 undone"),
        (COMPLETED, "Completed", "all 4 jobs completed"),
        (FAILED, "Failed", "failed, 2 of 2 undone"),
        (group("FAILED", finished_at=9_000), "Failed", "failed, nothing had to be undone"),
        (
            HALF_UNDONE,
            "CompensationFailed",
            "failed, 1 of 2 undone, the rest could not be",
        ),
    ],
)
def test_ready_says_how_it_goes(state: GroupState, reason: str, message: str) -> None:
    ready = derive(state)["conditions"][0]
    assert (ready["type"], ready["reason"], ready["message"]) == ("Ready", reason, message)
    assert not state.ended or ending(state) == message


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (COMPENSATING, 'job "charge" failed: card declined'),
        (replace(COMPENSATING, failed_job_id="g-9"), 'job "g-9" failed: card declined'),
        (group("FAILED", reason="cancelled"), "cancelled"),
        (group("FAILED", reason="DeadlineExceeded"), "its deadline passed"),
    ],
)
def test_why_a_group_was_given_up(state: GroupState, sentence: str) -> None:
    assert why(state, NAMES) == sentence


def test_trouble_is_told_in_every_condition_and_takes_nothing_else_away() -> None:
    before = derive(COMPENSATING)
    status = derive(None, before, AWAY, now=NOW + 5_000)
    assert {each["reason"] for each in status["conditions"]} == {"RedisUnavailable"}
    assert status["conditions"][0]["message"] == "Connection refused"
    assert {**status, "conditions": []} == {**before, "conditions": []}


@pytest.mark.parametrize("ended", [COMPLETED, FAILED, HALF_UNDONE])
def test_what_was_said_of_an_end_stays_said(ended: GroupState) -> None:
    """Nobody is alarmed, and nothing written, because Redis is away or has forgotten the group."""
    before = derive(ended)
    assert derive(None, before, AWAY, NOW + 5_000) == before
    assert derive(None, before, AWAY, NOW + 5_000, generation=2) == before
    assert derive(None, before, None, NOW + 5_000) == before
    seen = derive(None, before, None, NOW + 5_000, generation=2)
    assert kstatus(seen, generation=2) == kstatus(before)
    assert {each["observedGeneration"] for each in [seen, *seen["conditions"]]} == {2}
    times = [each["lastTransitionTime"] for each in before["conditions"]]
    assert [each["lastTransitionTime"] for each in seen["conditions"]] == times


def test_a_group_cancelled_before_it_was_created_finished_when_it_was() -> None:
    first = derive(None, {**derive(trouble=SUSPENDED), "state": "FAILED"}, CANCELLED)
    assert first["finishedAt"] == seconds(NOW)
    again = derive(None, {**first, "state": "FAILED"}, CANCELLED, NOW + 60_000)
    assert again == first


def times(status: Mapping[str, Any]) -> dict[str, str]:
    return {each["type"]: each["lastTransitionTime"] for each in status["conditions"]}


def test_a_condition_is_dated_from_when_its_status_changed() -> None:
    moments = [seconds(NOW + n * 1_000) for n in range(5)]
    status = derive(group(), now=NOW)
    assert times(status) == dict.fromkeys(("Ready", "Reconciling", "Finished"), moments[0])
    status = derive(COMPENSATING, status, now=NOW + 1_000)
    assert times(status) == {
        **dict.fromkeys(("Ready", "Reconciling", "Finished"), moments[0]),
        "Compensated": moments[1],
    }
    status = derive(None, status, AWAY, now=NOW + 2_000)
    status = derive(COMPENSATING, status, now=NOW + 3_000, generation=2)
    assert times(status) == {
        **dict.fromkeys(("Ready", "Reconciling", "Finished"), moments[0]),
        "Compensated": moments[1],
    }
    status = derive(FAILED, status, now=NOW + 4_000)
    assert times(status) == {
        "Ready": moments[0],
        **dict.fromkeys(("Stalled", "Finished", "Succeeded", "Compensated"), moments[4]),
    }


def test_a_condition_that_comes_back_is_dated_anew() -> None:
    status = derive(group(), now=NOW)
    status = derive(None, status, LOST, now=NOW + 1_000)
    status = derive(group(), status, now=NOW + 2_000)
    assert times(status)["Reconciling"] == seconds(NOW + 2_000)
    assert times(status)["Ready"] == seconds(NOW)


def test_a_condition_without_a_date_gets_one() -> None:
    previous = {"conditions": [{"type": "Ready", "status": "False"}]}
    assert times(derive(group(), previous))["Ready"] == seconds(NOW)


@pytest.mark.parametrize("trouble", [None, AWAY, INVALID, LOST, SUSPENDED])
@pytest.mark.parametrize(
    "state", [None, group(), COMPENSATING, COMPLETED, FAILED, HALF_UNDONE], ids=str
)
def test_nothing_changes_while_nothing_changed(
    state: GroupState | None, trouble: Trouble | None
) -> None:
    first = derive(state, trouble=trouble)
    assert derive(state, first, trouble, NOW + 3_600_000) == first
    # As it comes back from the API server.
    assert derive(state, json.loads(json.dumps(first)), trouble, NOW + 3_600_000) == first


def test_those_come_first_that_a_person_looks_for() -> None:
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


def test_every_place_of_a_job_has_its_rank() -> None:
    jobs = [
        job(n, status, undo)
        for n, (status, undo) in enumerate(
            (status, undo) for status in get_args(JobStatus) for undo in get_args(UndoStatus)
        )
    ]
    assert len(derive_status(1, {}, NOW, COMPENSATING, jobs, {})["jobs"]) == len(jobs)


@pytest.mark.parametrize(("count", "omitted"), [(100, None), (101, 1)])
def test_a_status_says_how_many_jobs_it_leaves_out(count: int, omitted: int | None) -> None:
    status = derive_status(1, {}, NOW, group(), [job(n) for n in range(count)], {})
    assert status.get("jobsOmitted") == omitted


@pytest.mark.parametrize(
    "char", ["a", "\u00e9", "\u20ac", "\N{PILE OF POO}", '"', "\x01", "\ud800"]
)
@pytest.mark.parametrize("reason", HOSTILE, ids=range(len(HOSTILE)))
def test_a_status_stays_small_whatever_it_is_about(char: str, reason: str) -> None:
    uid = "0" * 128
    many = range(2_000)
    names = {f"{uid}-{n}": f"{n:04}{char * 249}" for n in many}
    jobs = [GroupJob(f"{uid}-{n}", "", "completed", "q" * 63, "completed") for n in many]
    state = replace(HALF_UNDONE, id=uid, total_jobs=2_000, failed_job_id=f"{uid}-7", reason=reason)
    status = derive_status(10**9, {}, NOW, state, jobs, names)
    assert len(json.dumps(status)) <= 65_536
    assert status["jobsOmitted"] + len(status["jobs"]) == 2_000
    assert status["jobs"]
    running = derive_status(10**9, {}, NOW, replace(state, state="ACTIVE"), jobs, names)
    for trouble in (Trouble("RedisError", reason, stalled=False), Trouble("InvalidSpec", reason)):
        assert len(json.dumps(derive_status(10**9, running, NOW, trouble=trouble))) <= 65_536


@pytest.mark.parametrize("reason", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_reason_does_no_harm(reason: str) -> None:
    names = {"g-1": reason[:253]}
    told = derive_status(1, {}, NOW, replace(FAILED, reason=reason), [], names)
    given_up = derive(replace(FAILED, reason=reason, failed_job_id=""))
    trouble = derive(trouble=Trouble("InvalidSpec", reason))
    assert is_harmless(told["failure"]["reason"])
    for status in (told, given_up, trouble):
        texts = [each["message"] for each in (*status.get("events", ()), *status["conditions"])]
        assert all(map(is_harmless, texts))
        assert len(status.get("events", ())) <= 10


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("card declined", "card declined"),
        ("a\r\nb\tc\x00d\x1b[2J", "a  b c d [2J"),
        ("\ud800x\u202ey\u2028z", " x y z"),
        ("\ufffd", "\ufffd"),
        ("a" * 1_023 + "\u00e9", "a" * 1_023),
        ("a" * 1_022 + "\u00e9", "a" * 1_022 + "\u00e9"),
        ("\N{PILE OF POO}" * 257, "\N{PILE OF POO}" * 256),
    ],
)
def test_what_a_worker_wrote_is_one_line_of_whole_characters(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert is_harmless(cleaned)


def test_times_are_spelt_as_the_api_server_does() -> None:
    assert seconds(1_700_000_000_999) == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize("before", ["", "PENDING", "ACTIVE"])
@pytest.mark.parametrize(
    "counts",
    [
        {"undo_count": 2, "undone_count": 2},
        # It waited for a job at work, which failed as well.
        {"failed_count": 2},
        # What had been done has no undo: given up and ended in one call.
        {"completed_count": 1, "finished_at": 3_000},
    ],
)
def test_a_group_that_ended_before_anybody_looked_was_compensating(
    before: str, counts: dict[str, int]
) -> None:
    passed = skipped(
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
    assert skipped(before, state) is None
