"""The conditions of a JobGroup: as kstatus reads them, as people read them, and their times."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from jobgroup.model.snapshot import GroupState
from jobgroup.resource.conditions import sanitize, to_rfc3339
from jobgroup.resource.status import end_message
from tests.builders import group
from tests.jobgroup.resource.statuses import (
    AWAY,
    CANCELLED,
    COMPENSATING,
    COMPLETED,
    FAILED,
    HALF_UNDONE,
    INVALID,
    LOST,
    NOW,
    SUSPENDED,
    UNSEEN,
    derive,
    is_harmless,
    kstatus,
    statuses_by_type,
)

READINGS: list[tuple[str, dict[str, Any], str]] = [
    ("unseen", dict(UNSEEN), "InProgress"),
    ("pending", derive(), "InProgress"),
    ("active", derive(group()), "InProgress"),
    ("compensating", derive(COMPENSATING), "InProgress"),
    ("suspended", derive(problem=SUSPENDED), "InProgress"),
    ("completed", derive(COMPLETED), "Current"),
    ("failed", derive(FAILED), "Failed"),
    ("failed, nothing to undo", derive(group("FAILED", finished_at=9_000)), "Failed"),
    ("compensation failed", derive(HALF_UNDONE), "Failed"),
    ("invalid", derive(problem=INVALID), "Failed"),
    ("cancelled before creation", derive(None, {"state": "FAILED"}, CANCELLED), "Failed"),
    ("lost", derive(None, derive(group()), LOST), "Failed"),
    ("lost while undoing", derive(None, derive(COMPENSATING), LOST), "Failed"),
    ("redis away before creation", derive(problem=AWAY), "InProgress"),
    ("redis away while active", derive(None, derive(group()), AWAY), "InProgress"),
    ("redis away while undoing", derive(None, derive(COMPENSATING), AWAY), "InProgress"),
    ("redis away after completion", derive(None, derive(COMPLETED), AWAY), "Current"),
    ("redis away after failure", derive(None, derive(FAILED), AWAY), "Failed"),
    ("completed, group gone", derive(None, derive(COMPLETED)), "Current"),
]


@pytest.mark.parametrize(
    ("status", "reading"), [row[1:] for row in READINGS], ids=[row[0] for row in READINGS]
)
def test_kstatus_reads_each_state(status: dict[str, Any], reading: str) -> None:
    assert kstatus(status) == reading
    assert kstatus(status, deleting=True) == "Terminating"
    assert kstatus(status, generation=2) == "InProgress"


SEEN = READINGS[1:]


@pytest.mark.parametrize("status", [row[1] for row in SEEN], ids=[row[0] for row in SEEN])
def test_conditions_never_contradict_each_other(status: dict[str, Any]) -> None:
    conditions = statuses_by_type(status)
    assert len(conditions) == len(status["conditions"])
    assert [conditions.get(kind) for kind in ("Ready", "Stalled", "Reconciling")].count("True") == 1
    assert conditions["Finished"] == ("True" if "finishedAt" in status else "False")
    assert ("Succeeded" in conditions) == (conditions["Finished"] == "True")
    for each in status["conditions"]:
        assert each["reason"].isalpha()
        assert each["message"]
        assert each["observedGeneration"] == status["observedGeneration"] == 1


# A job failed, and three are active.
WAITS = replace(COMPENSATING, completed_count=0, cancelled_count=0, undo_count=0, undone_count=0)
PEOPLE = ("Finished", "Succeeded", "Compensated")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (derive(), ("False", None, None)),
        (derive(group()), ("False", None, None)),
        (derive(COMPENSATING), ("False", None, "False")),
        # All undos completed so far, but a job is still active and may complete.
        (derive(replace(COMPENSATING, undone_count=2)), ("False", None, "False")),
        (derive(COMPLETED), ("True", "True", None)),
        (derive(FAILED), ("True", "False", "True")),
        (derive(group("FAILED", finished_at=9_000)), ("True", "False", "True")),
        (derive(HALF_UNDONE), ("True", "False", "False")),
        # A job that a user retried completed late; its undo is pending.
        (derive(replace(FAILED, undo_count=3)), ("True", "False", "False")),
        (derive(None, {"state": "FAILED"}, CANCELLED), ("True", "False", None)),
        (derive(None, derive(COMPENSATING), AWAY), ("False", None, "False")),
        (derive(None, derive(COMPENSATING), LOST), ("False", None, "False")),
    ],
)
def test_the_conditions_for_people(
    status: dict[str, Any], expected: tuple[str | None, ...]
) -> None:
    assert tuple(statuses_by_type(status).get(kind) for kind in PEOPLE) == expected


@pytest.mark.parametrize(
    ("state", "reason", "message"),
    [
        (group(completed_count=1), "Running", "1 of 4 jobs completed"),
        (COMPENSATING, "Compensating", "compensating, 1 of 2 undone"),
        (WAITS, "Compensating", "compensating, waiting for 3 jobs to end"),
        (
            replace(COMPENSATING, cancelled_count=0),
            "Compensating",
            "compensating, 1 of 2 undone, waiting for 1 job to end",
        ),
        (COMPLETED, "Completed", "all 4 jobs completed"),
        (FAILED, "Failed", "failed, 2 of 2 undone"),
        (group("FAILED", finished_at=9_000), "Failed", "failed, nothing had to be undone"),
        (
            HALF_UNDONE,
            "CompensationFailed",
            "failed, 1 of 2 undone, 1 could not be undone",
        ),
    ],
)
def test_the_reason_and_message_of_ready(state: GroupState, reason: str, message: str) -> None:
    ready = derive(state)["conditions"][0]
    assert (ready["type"], ready["reason"], ready["message"]) == ("Ready", reason, message)
    assert not state.ended or end_message(state) == message


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (WAITS, "compensating, waiting for 3 jobs to end"),
        (COMPENSATING, "1 of 2 undone"),
        (group("FAILED", finished_at=9_000), "nothing had to be undone"),
    ],
)
def test_the_message_of_compensated(state: GroupState, message: str) -> None:
    assert [
        each["message"] for each in derive(state)["conditions"] if each["type"] == "Compensated"
    ] == [message]


def test_a_problem_is_in_every_condition_and_changes_nothing_else() -> None:
    before = derive(COMPENSATING)
    status = derive(None, before, AWAY, now=NOW + 5_000)
    assert {each["reason"] for each in status["conditions"]} == {"RedisUnavailable"}
    assert status["conditions"][0]["message"] == "Connection refused"
    assert {**status, "conditions": []} == {**before, "conditions": []}


def times(status: Mapping[str, Any]) -> dict[str, str]:
    return {each["type"]: each["lastTransitionTime"] for each in status["conditions"]}


def test_the_transition_time_is_when_the_status_changed() -> None:
    moments = [to_rfc3339(NOW + n * 1_000) for n in range(5)]
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


def test_a_condition_that_returns_has_a_new_transition_time() -> None:
    status = derive(group(), now=NOW)
    status = derive(None, status, LOST, now=NOW + 1_000)
    status = derive(group(), status, now=NOW + 2_000)
    assert times(status)["Reconciling"] == to_rfc3339(NOW + 2_000)
    assert times(status)["Ready"] == to_rfc3339(NOW)


def test_a_condition_without_a_transition_time_gets_one() -> None:
    previous = {"conditions": [{"type": "Ready", "status": "False"}]}
    assert times(derive(group(), previous))["Ready"] == to_rfc3339(NOW)


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
def test_sanitize_returns_one_line_of_valid_utf_8(text: str, cleaned: str) -> None:
    assert sanitize(text) == cleaned
    assert is_harmless(cleaned)


def test_times_have_whole_seconds() -> None:
    assert to_rfc3339(1_700_000_000_999) == "2023-11-14T22:13:20Z"
