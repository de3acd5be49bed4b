"""The check of rights: what it logs and reports; test_missing_rights.py has the operator."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from handlers.kube.client import ApiClient, ApiError
from handlers.kube.rights import Need, Review, reviews
from handlers.kube.rights_check import RightsCheck

REVIEWS = reviews((), "sagas", "leader")
GET_NAMESPACES = "cannot get namespaces"
SCALE = [
    f'cannot patch {kind}/scale in API group "apps"' for kind in ("deployments", "statefulsets")
]


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


def check_of(
    answers: Answers,
    needed: list[Review] = REVIEWS,
    leads: bool = True,
    pools: Callable[[], bool] = lambda: False,
) -> RightsCheck:
    api = cast(ApiClient, SimpleNamespace(request=answers.request))
    return RightsCheck(api, needed, lambda: leads, pools)


async def test_a_right_is_logged_once_while_it_is_missing_and_when_it_is_granted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    answers = Answers()
    check = check_of(answers)
    await check.review()
    assert (check.check(), caplog.messages) == ("", [])
    answers.denied = {"namespaces"}
    for _ in range(2):
        await check.review()
        assert check.check() == GET_NAMESPACES
    assert caplog.messages == ["a right is missing: the operator cannot get namespaces"]
    answers.denied = set()
    await check.review()
    assert check.check() == ""
    granted = "a right that was missing is granted: the operator can get namespaces"
    assert caplog.messages[1:] == [granted]


async def test_several_missing_rights_are_all_named() -> None:
    answers = Answers()
    answers.denied = {"customresourcedefinitions", "namespaces"}
    check = check_of(answers)
    await check.review()
    crds = 'customresourcedefinitions in API group "apiextensions.k8s.io"'
    assert check.check() == f"{GET_NAMESPACES}; cannot list {crds}; cannot watch {crds}"


async def test_a_right_of_an_optional_feature_is_a_warning_and_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers, has_pools = Answers(), False
    optional = [each for each in REVIEWS if each.right.need is Need.NEVER]
    assert list(map(str, optional)) == [
        "create events",
        'get leases in API group "coordination.k8s.io"',
    ]
    scales = [each for each in REVIEWS if f"cannot {each}" in SCALE]
    answers.denied = {"events", "leases", "deployments", "statefulsets"}
    check = check_of(answers, [*optional, *scales], pools=lambda: has_pools)
    await check.review()
    never = [f"cannot {each}" for each in optional]
    assert check.check() == ""
    assert check.note() == "; ".join([*never, *SCALE])
    assert [each.levelname for each in caplog.records] == ["WARNING"] * 4
    has_pools = True
    assert check.check() == "; ".join(SCALE)
    assert check.note() == "; ".join(never)


async def test_a_review_without_an_answer_proves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    answers = Answers()
    check = check_of(answers)
    answers.fails = True
    await check.review()
    assert check.check() == ""
    answers.fails, answers.denied = False, {"namespaces"}
    await check.review()
    answers.fails = True
    await check.review()
    assert check.check() == GET_NAMESPACES
    said = "cannot check the rights of the operator; retrying: cannot reach the API server"
    assert caplog.messages.count(said) == 2


async def test_a_replica_that_waits_is_ready_without_rights() -> None:
    answers = Answers()
    answers.denied = {"namespaces", "events"}
    check = check_of(answers, leads=False)
    await check.review()
    assert (check.check(), check.note()) == ("", "")
