"""The answers to jobs in a spec, and the jobs -> what to apply, and what to show. Pure.

An answer is applied once its job is pending. The first answer that Redis accepted holds, whoever
gave it, so later changes of the spec have no effect.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from jobgroup.definition.answers import Answer, completion, failure
from jobgroup.errors import InvalidSpecError
from jobgroup.model.names import job_id
from jobgroup.model.snapshot import GroupJob, GroupState

AnswerState = Literal["Waiting", "Applied", "Refused"]


def standing_answers(body: Mapping[str, Any]) -> dict[str, Answer | None]:
    """Return the answers of an object by job id; None stands for one that cannot be applied."""
    spec = body["spec"]
    given = spec.get("complete")
    if not given:
        return {}
    names = [job["name"] for job in spec.get("jobs") or ()]
    uid = body["metadata"]["uid"]
    return {job_id(uid, n): _answer(given[name]) for n, name in enumerate(names) if name in given}


def _answer(given: Mapping[str, Any]) -> Answer | None:
    try:
        if given.get("failed") is None:
            return completion(given.get("returnValue"), given["by"])
        return failure(given["failed"], given["by"])
    except InvalidSpecError:
        return None


def due_answers(
    answers: Mapping[str, Answer | None], group: GroupState | None, jobs: Sequence[GroupJob]
) -> dict[str, Answer]:
    """Return the answers that can be applied now, by job id."""
    if not answers or group is None or group.state != "ACTIVE":
        return {}
    pending = [job.job_id for job in jobs if job.status == "pending" and not job.answer]
    return {its_id: answer for its_id in pending if (answer := answers.get(its_id))}


def answer_states(
    answers: Mapping[str, Answer | None], group: GroupState, jobs: Sequence[GroupJob]
) -> dict[str, AnswerState]:
    """Return what became of each answer, by job id."""
    return {
        job.job_id: _state(answers[job.job_id], group, job) for job in jobs if job.job_id in answers
    }


def _state(answer: Answer | None, group: GroupState, job: GroupJob) -> AnswerState:
    if answer is None:
        return "Refused"
    if job.answer:
        return "Applied" if job.answer == answer.digest else "Refused"
    waits = group.state == "ACTIVE" and job.status in ("pending", "active")
    return "Waiting" if waits else "Refused"
