"""The check of rights: what it logs and reports; test_missing_rights.py has the operator."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from handlers.kube.client import ApiClient, ApiError
from handlers.kube.rights import Review, reviews
from handlers.kube.rights_check import RightsCheck

REVIEWS = reviews((), "sagas", "leader")
POST_EVENTS = "cannot create events"


class Answers:
    """An API server that denies the rights to some resources, or does not answer."""

    def __init__(self) -> None:
        self.denied: set[str] = set()
        self.fails = False

    async def request(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.fails:
            raise ApiError(0, "cannot reach the API server")
        resource = body["spec"]["resourceAttributes"]["resource"]
        return {"status": {"allowed": resource not in self.denied}}


def check_of(answers: Answers, needed: list[Review] = REVIEWS, leads: bool = True) -> RightsCheck:
    api = cast(ApiClient, SimpleNamespace(request=answers.request))
    return RightsCheck(api, needed, lambda: leads)


async def test_a_right_is_logged_once_while_it_is_missing_and_when_it_is_granted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    answers = Answers()
    check = check_of(answers)
    await check.review()
    assert (check.check(), caplog.messages) == ("", [])
    answers.denied = {"events"}
    for _ in range(2):
        await check.review()
        assert check.check() == POST_EVENTS
    assert caplog.messages == [f"a right is missing: the operator {POST_EVENTS}"]
    answers.denied = set()
    await check.review()
    assert check.check() == ""
    assert caplog.messages[1:] == [f"a right that was missing is granted: {POST_EVENTS}"]


async def test_several_missing_rights_are_all_named() -> None:
    answers = Answers()
    answers.denied = {"events", "namespaces"}
    check = check_of(answers)
    await check.review()
    assert check.check() == f"{POST_EVENTS}; cannot get namespaces"


async def test_a_review_without_an_answer_proves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    answers = Answers()
    check = check_of(answers)
    answers.fails = True
    await check.review()
    assert check.check() == ""
    answers.fails, answers.denied = False, {"events"}
    await check.review()
    answers.fails = True
    await check.review()
    assert check.check() == POST_EVENTS
    said = "cannot check the rights of the operator; retrying: cannot reach the API server"
    assert caplog.messages.count(said) == 2


async def test_a_replica_that_waits_is_ready_without_rights() -> None:
    answers = Answers()
    answers.denied = {"events"}
    check = check_of(answers, leads=False)
    await check.review()
    assert check.check() == ""
