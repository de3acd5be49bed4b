"""Lists are reported, refusals counted; tests/resources/outages/test_watches.py has the rest."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from kopf._cogs.clients import errors

from handlers.kube import watches as module
from handlers.kube.refusals import Refusals
from handlers.kube.watches import Watches
from jobgroup.resource.kinds import API_VERSION

LIST = f"/apis/{API_VERSION}/jobgroups"


def page(*uids: str, further: str = "") -> dict[str, Any]:
    items = [{"metadata": {"uid": uid}} for uid in uids]
    return {"metadata": {"continue": further}, "items": items}


async def lists(
    monkeypatch: pytest.MonkeyPatch, *pages: tuple[str, dict[str, Any]]
) -> list[tuple[str, set[str]]]:
    """Read pages as kopf does; return the lists of JobGroups that were reported."""
    answers = dict(pages)

    async def answer(url: str) -> dict[str, Any]:
        return answers[url]

    monkeypatch.setattr(module, "_get", answer)
    watches, found = Watches(60), list[tuple[str, set[str]]]()
    watches.on_list("jobgroups", lambda namespace, uids: found.append((namespace, uids)))
    for url, _ in pages:
        await watches.get(url)
    return found


async def test_a_list_is_reported_after_its_last_page(monkeypatch: pytest.MonkeyPatch) -> None:
    first = (f"{LIST}?limit=2", page("1", "2", further="x"))
    last = (f"{LIST}?limit=2&continue=x", page("3"))
    assert await lists(monkeypatch, first) == []
    assert await lists(monkeypatch, first, last) == [("", {"1", "2", "3"})]


async def test_a_list_that_starts_again_reports_no_page_of_the_first_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = (f"{LIST}?limit=2", page("1", "2", further="x"))
    again = (LIST, page("2"))
    assert await lists(monkeypatch, first, again) == [("", {"2"})]


async def test_a_list_of_one_namespace_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/apis/{API_VERSION}/namespaces/shop/jobgroups"
    assert await lists(monkeypatch, (path, page("1"))) == [("shop", {"1"})]


@pytest.mark.parametrize(
    "path", [f"/apis/{API_VERSION}/workerpools", f"/apis/{API_VERSION}", "/apis/other/v1/jobgroups"]
)
async def test_other_reads_are_not_reported(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    assert await lists(monkeypatch, (path, page("1"))) == []


def refusal(code: int) -> errors.APIError:
    return errors.APIForbiddenError("forbidden", status=code, headers={})


async def test_a_refused_list_and_a_refused_watch_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no_list(_: str) -> dict[str, Any]:
        raise refusal(403)

    async def no_watch(_: str) -> AsyncGenerator[dict[str, Any], None]:
        raise refusal(403)
        yield {}

    monkeypatch.setattr(module, "_get", no_list)
    monkeypatch.setattr(module, "_stream", no_watch)
    refusals = Refusals()
    watches = Watches(60, refusals)
    with pytest.raises(errors.APIForbiddenError):
        await watches.get(f"{LIST}?limit=100")
    assert refusals.counts == {("list", "jobgroups", 403): 1}
    with pytest.raises(errors.APIForbiddenError):
        async for _ in watches.stream(f"{LIST}?watch=true"):
            pass
    assert refusals.counts["watch", "jobgroups", 403] == 1
