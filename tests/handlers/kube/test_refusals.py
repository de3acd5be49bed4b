"""Refused requests are counted by verb, resource and code."""

import pytest

from handlers.kube.refusals import NONE_REFUSED, REVIEWS, Refusals

STATUS = "/apis/jobgroups.dev/v1alpha1/namespaces/shop/jobgroups/order/status"


@pytest.mark.parametrize("code", [400, 401, 403, 413, 422])
def test_a_refusal_is_counted(code: int) -> None:
    refusals = Refusals()
    refusals.count("PUT", STATUS, code)
    refusals.count("PUT", STATUS, code)
    assert refusals.counts == {("update", "jobgroups/status", code): 2}
    assert refusals.forbidden.is_set() == (code == 403)


@pytest.mark.parametrize("code", [0, 200, 404, 408, 409, 410, 429, 500, 503])
def test_what_is_no_refusal_is_not_counted(code: int) -> None:
    refusals = Refusals()
    refusals.count("PUT", STATUS, code)
    assert refusals.counts == {}
    assert not refusals.forbidden.is_set()


def test_the_number_of_resources_is_limited() -> None:
    refusals = Refusals()
    for url in ("/apis/example.org/v1", "/apis/example.org/v1/namespaces/a/fleets/one"):
        refusals.count("PATCH", url, 403)
    assert refusals.counts == {("patch", "other", 403): 2}


def test_a_refused_review_of_rights_is_not_counted() -> None:
    refusals = Refusals()
    refusals.count("POST", REVIEWS, 403)
    assert refusals.counts == {}
    assert not refusals.forbidden.is_set()


def test_every_right_has_a_series_for_403_and_every_write_for_what_is_invalid() -> None:
    assert ("watch", "jobgroups", 403) in NONE_REFUSED
    assert ("watch", "jobgroups", 422) not in NONE_REFUSED
    assert ("create", "events", 422) in NONE_REFUSED
