"""The answers in a spec: what is applied now, and what the status says about each."""

from typing import Any

import pytest

from jobgroup.definition.answers import completion, failure
from jobgroup.model.snapshot import GroupJob, JobStatus
from jobgroup.resource.answers import answer_states, due_answers, standing_answers
from jobgroup.resource.decisions import Step, next_step
from jobgroup.resource.status import derive_status
from tests.builders import group
from tests.jobgroup.resource.test_decisions import ACTIVE, CLAIMED, COMPLETED, INCARNATION, NOW

YES = completion({"limit": 5}, "ann")
NO = failure("declined", "ann")


def body(**complete: Any) -> dict[str, Any]:
    jobs = [{"name": name} for name in ("charge", "approve", "ship")]
    return {"metadata": {"uid": "g"}, "spec": {"jobs": jobs, "complete": complete}}


def jobs(*statuses: JobStatus, answer: str = "") -> list[GroupJob]:
    return [
        GroupJob(f"g-{n}", f"bull:q:g-{n}", status, "q", answer=answer)
        for n, status in enumerate(statuses)
    ]


def test_answers_are_read_by_job_id() -> None:
    given = {
        "approve": {"returnValue": {"limit": 5.0}, "by": "ann"},
        "ship": {"failed": "declined", "by": "ann"},
        "charge": {"by": "ben"},
        "nobody": {"by": "ben"},
    }
    found = standing_answers(body(**given))
    assert found == {"g-0": completion(None, "ben"), "g-1": found["g-1"], "g-2": NO}
    approved = found["g-1"]
    assert approved is not None
    assert (approved.digest, approved.by) == (YES.digest, "ann")
    assert standing_answers(body()) == {}


@pytest.mark.parametrize(
    "given",
    [{"failed": "a\nb", "by": "ann"}, {"failed": " ", "by": "ann"}, {"by": "a\nb"}],
)
def test_an_answer_that_cannot_be_recorded_is_refused(given: Any) -> None:
    answers = standing_answers(body(approve=given))
    assert answers == {"g-1": None}
    waiting = jobs("pending", "pending", "pending")
    assert due_answers(answers, group(), waiting) == {}
    assert answer_states(answers, group(), waiting) == {"g-1": "Refused"}


def test_only_pending_jobs_of_an_active_group_are_answered() -> None:
    answers = {"g-0": YES, "g-1": NO}
    found = jobs("pending", "active", "pending")
    assert due_answers(answers, group(), found) == {"g-0": YES}
    assert due_answers(answers, group("COMPENSATING"), found) == {}
    assert due_answers(answers, None, []) == {}
    assert due_answers(answers, group(), jobs("pending", answer=YES.digest)) == {}
    assert due_answers({}, group(), found) == {}


@pytest.mark.parametrize(
    ("state", "status", "accepted", "shown"),
    [
        ("ACTIVE", "pending", "", "Waiting"),
        ("ACTIVE", "active", "", "Waiting"),
        ("ACTIVE", "completed", "", "Refused"),
        ("ACTIVE", "completed", YES.digest, "Applied"),
        ("ACTIVE", "pending", YES.digest, "Applied"),  # it was retried since then
        ("ACTIVE", "failed", NO.digest, "Refused"),
        ("COMPENSATING", "active", "", "Refused"),
        ("COMPENSATING", "cancelled", "", "Refused"),
        ("COMPLETED", "completed", YES.digest, "Applied"),
    ],
)
def test_the_status_shows_what_became_of_an_answer(
    state: Any, status: JobStatus, accepted: str, shown: str
) -> None:
    found = jobs(status, answer=accepted)
    assert answer_states({"g-0": YES}, group(state), found) == {"g-0": shown}


def test_an_answer_is_a_line_of_its_job() -> None:
    found = jobs("active", "pending")
    status = derive_status(1, {}, NOW, group(), found, answers={"g-1": "Waiting"})
    assert [line.get("answer") for line in status["jobs"]] == [None, "Waiting"]


def test_an_answer_comes_after_a_cancellation_and_a_deadline() -> None:
    def step(resource: Any, found: Any, now: int = NOW) -> Step:
        return next_step(resource, found, INCARNATION, now, is_answered=True)

    assert step(CLAIMED, ACTIVE) is Step.ANSWER
    assert step(CLAIMED, COMPLETED) is Step.REPORT
    assert next_step(CLAIMED, ACTIVE, INCARNATION, NOW) is Step.REPORT
