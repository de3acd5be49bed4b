"""Watches, lists and the discovery of kinds that fail, are cut short or stay silent.

The operator reads again in place. Where it cannot, it releases the lease before it exits.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from jobgroup.resource.kinds import API_VERSION
from testbed.servers.operator import OperatorProcess
from testbed.servers.proxy import Proxy, is_watch
from testbed.support.stages import Stage
from testbed.support.waiting import wait_for
from tests.resources.outages.test_outages import by_proxy, completes, leads

CRASHING = Path(__file__).parent / "crashing_driver.py"
DISCOVERY = f"/apis/{API_VERSION}"
LIST = f"{DISCOVERY}/jobgroups"
SOON = {"WATCH_TIMEOUT_SECONDS": "5"}
OK = (200, "ok\n")


def status(code: int, reason: str) -> dict[str, Any]:
    message = f"the test says {reason}"
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "code": code,
        "reason": reason,
        "message": message,
    }


def line(code: int, reason: str) -> bytes:
    """Return an ERROR event, as the API server writes it to a watch."""
    return json.dumps({"type": "ERROR", "object": status(code, reason)}).encode() + b"\n"


def is_list(request: web.BaseRequest) -> bool:
    return request.path == LIST and not is_watch(request)


def times(number: int, selects: Callable[[web.BaseRequest], bool]) -> Callable[..., bool]:
    """Return a function that selects the first requests of a kind."""
    left = number

    def select(request: web.BaseRequest) -> bool:
        nonlocal left
        is_selected = left > 0 and selects(request)
        left -= is_selected
        return is_selected

    return select


def refuse(
    proxy: Proxy, selects: Callable[[web.BaseRequest], bool], code: int, reason: str
) -> None:
    """Answer requests with an HTTP status instead of passing them on."""

    def answer(request: web.BaseRequest) -> web.Response | None:
        refused = web.json_response(status(code, reason), status=code)
        return refused if selects(request) else None

    proxy.refuse = answer


def goes_on(stage: Stage, operator: OperatorProcess) -> None:
    """Check that a process still leads, sees new objects, and has logged no traceback."""
    completes(stage, "order")
    assert operator.server.code is None
    assert stage.lease_spec()["leaseTransitions"] == 0
    assert operator.probe("/livez") == OK
    assert "Traceback" not in operator.log


# Silence.


async def test_a_silent_watch_is_replaced(stage: Stage, proxy: Proxy) -> None:
    operator = by_proxy(stage, proxy, **SOON)
    await stage.worker()
    proxy.silence_watches()
    goes_on(stage, operator)
    assert f"the watch of {LIST} was silent for 5 s; listing all objects again" in operator.log
    wait_for(lambda: operator.probe("/readyz") == OK)


async def test_objects_are_seen_although_all_watches_are_silent_and_the_probes_fail(
    stage: Stage, proxy: Proxy
) -> None:
    operator = by_proxy(stage, proxy, **SOON)
    await stage.worker()
    wait_for(lambda: operator.probe("/readyz") == OK)
    proxy.silence_watches(new=True)
    completes(stage, "order")
    wait_for(lambda: operator.probe("/livez") == (503, "watch of jobgroups: silent for 10 s\n"))
    assert "watch of jobgroups: silent for" in operator.probe("/readyz")[1]
    proxy.unsilence_watches()
    wait_for(lambda: operator.probe("/readyz") == OK)
    assert operator.server.code is None


async def test_an_idle_watch_is_not_silent(stage: Stage, proxy: Proxy) -> None:
    operator = by_proxy(stage, proxy, WATCH_TIMEOUT_SECONDS="12")
    wait_for(lambda: proxy.watches > 2)
    assert "silent" not in operator.log
    assert operator.probe("/livez") == OK


# Failures.


@pytest.mark.parametrize("number", [1, 3])
async def test_objects_are_listed_when_a_watch_is_refused_as_expired(
    stage: Stage, proxy: Proxy, number: int
) -> None:
    operator = by_proxy(stage, proxy)
    await stage.worker()
    refuse(proxy, times(number, is_watch), 410, "Expired")
    proxy.cut_watches()
    wait_for(lambda: len(proxy.refused) == number)
    goes_on(stage, operator)
    assert f"the watch of {LIST} is refused; listing all objects again: " in operator.log
    assert "the test says Expired" in operator.log


@pytest.mark.parametrize(("code", "reason"), [(410, "Expired"), (500, "InternalError")])
async def test_objects_are_listed_after_an_error_in_a_watch(
    stage: Stage, proxy: Proxy, code: int, reason: str
) -> None:
    operator = by_proxy(stage, proxy)
    await stage.worker()
    proxy.inject(line(code, reason))
    goes_on(stage, operator)
    assert f"the test says {reason}" in operator.log


async def test_a_watch_that_ends_in_the_middle_of_a_line_is_continued(
    stage: Stage, proxy: Proxy
) -> None:
    operator = by_proxy(stage, proxy)
    await stage.worker()
    proxy.inject(b'{"type": "ADDED", "object": {"kind": "Jo', end=True)
    goes_on(stage, operator)
    assert f"the watch of {LIST} ended in the middle of an event" in operator.log


@pytest.mark.parametrize("announced", [True, False], ids=["error of HTTP", "incomplete JSON"])
@pytest.mark.parametrize("path", [DISCOVERY, LIST])
async def test_discovery_and_lists_that_are_cut_short_are_repeated(
    stage: Stage, proxy: Proxy, path: str, announced: bool
) -> None:
    proxy.announces_length = announced
    proxy.shorten = times(2, lambda request: request.path == path and not is_watch(request))
    operator = by_proxy(stage, proxy)
    await stage.worker()
    assert proxy.shortened == [path, path]
    goes_on(stage, operator)
    assert f"cannot read {path}; retrying: " in operator.log


async def test_a_list_that_expires_starts_again(stage: Stage, proxy: Proxy) -> None:
    refuse(proxy, times(1, is_list), 410, "Expired")
    operator = by_proxy(stage, proxy)
    await stage.worker()
    assert proxy.refused == [("GET", LIST)]
    goes_on(stage, operator)


async def test_an_incomplete_answer_about_the_lease_is_repeated(stage: Stage, proxy: Proxy) -> None:
    operator = by_proxy(stage, proxy)
    await stage.worker()
    proxy.announces_length = False
    proxy.shorten = times(2, lambda request: "leases" in request.path)
    wait_for(lambda: len(proxy.shortened) == 2)
    goes_on(stage, operator)
    wait_for(lambda: "the answer of the API server is incomplete" in operator.log)


# Where the process has to exit.


def hands_over(stage: Stage, first: OperatorProcess, second: OperatorProcess) -> None:
    """Check that the first replica exits, and that the second leads before the lease expires."""
    leads(second)
    assert stage.lease_spec()["leaseTransitions"] == 2
    assert first.server.wait() == 1
    assert f"released the lease {stage.lease}" in first.log


async def test_the_lease_is_released_if_lists_are_refused(stage: Stage, proxy: Proxy) -> None:
    first = by_proxy(stage, proxy)
    second = stage.operator("second")
    await stage.worker()
    wait_for(lambda: "this replica waits" in second.log)
    refuse(proxy, lambda request: request.path == LIST, 404, "NotFound")
    proxy.cut_watches()
    hands_over(stage, first, second)
    assert f"the API server refuses to list or watch {LIST}; the process exits: " in first.log
    assert "the test says NotFound" in first.log
    completes(stage, "order")


async def test_the_lease_is_released_if_a_task_crashes(stage: Stage, tmp_path: Path) -> None:
    crash = tmp_path / "crash"
    first = stage.operator("first", script=CRASHING, CRASH=str(crash))
    leads(first)
    second = stage.operator("second")
    await stage.worker()
    wait_for(lambda: "this replica waits" in second.log)
    crash.touch()
    hands_over(stage, first, second)
    assert "the task jobgroup driver ended unexpectedly" in first.log
    assert "the driver is broken" in first.log
    completes(stage, "order")
