"""/livez fails when a part of the operator does not run, and names it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import kopf
import pytest

from handlers.jobgroups.follower import Follower
from handlers.kube import leader
from handlers.kube import watches as watches_module
from handlers.kube.watches import Watches
from handlers.settings import read_settings
from handlers.startup import Operator
from handlers.telemetry import checks
from handlers.telemetry.checks import DEAD_SECONDS, WatchCheck, check_progress
from handlers.workerpools.controller import PoolController
from jobgroup import Driver
from jobgroup.resource.kinds import API_VERSION
from testbed.servers.operator import ask, environment
from testbed.servers.processes import free_port
from testbed.support.stages import PREFIX, Stage
from testbed.support.waiting import eventually

NO_PROGRESS = "no progress for 120 s"
NO_WATCH = "no watch for 120 s"
OTHERS = {"jobgroups": "workerpools", "workerpools": "jobgroups"}
LOOPS: dict[str, tuple[type[Any], str]] = {
    "driver": (Driver, "run"),
    "changes": (Follower, "follow_changes"),
    "pools": (PoolController, "run"),
}


@asynccontextmanager
async def started(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Operator]:
    """Start an operator in this process, without kopf."""
    settings = {"LEASE_NAME": stage.lease, "PORT": str(free_port())}
    env = environment(stage.api.operator, stage.redis.url, PREFIX, "here", **settings)
    monkeypatch.setitem(os.environ, "KUBECONFIG", env["KUBECONFIG"])
    operator = Operator(read_settings(env), kopf.OperatorSettings())
    try:
        await operator.start()
        yield operator
    finally:
        await operator.stop()


async def livez(operator: Operator) -> tuple[int, str]:
    return await asyncio.to_thread(ask, operator._settings.port, "/livez")


async def hang(loop: Any) -> None:
    """Replace a loop with one that makes no progress."""
    stale = time.monotonic() - DEAD_SECONDS - 1
    if isinstance(loop, Driver):
        loop._turn_at["running"] = stale
    else:
        loop.alive_at = stale
    await asyncio.Event().wait()


async def test_livez_is_ok_while_everything_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(stage, monkeypatch) as operator:
        assert await livez(operator) == (200, "ok\n")


@pytest.mark.parametrize("loop", LOOPS)
async def test_livez_fails_when_a_loop_hangs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(*LOOPS[loop], hang)
    async with started(stage, monkeypatch) as operator:

        async def is_red() -> bool:
            return await livez(operator) == (503, f"{loop}: {NO_PROGRESS}\n")

        await eventually(is_red)


@pytest.mark.parametrize(("age", "said"), [(DEAD_SECONDS, ""), (DEAD_SECONDS + 1, NO_PROGRESS)])
def test_a_slow_loop_is_alive(monkeypatch: pytest.MonkeyPatch, age: int, said: str) -> None:
    monkeypatch.setattr(checks, "time", SimpleNamespace(monotonic=lambda: 1000.0 + age))
    assert check_progress(1000.0) == said


async def test_the_lease_check_fails_when_the_lease_expired(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(stage, monkeypatch) as operator:
        assert operator._check_lease() == ""
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + leader.LENGTH_SECONDS)
        with monkeypatch.context() as moved:
            moved.setattr(leader, "time", later)
            assert operator._check_lease() == "this replica lost the leader lease"


class Clock:
    """A monotonic clock that a test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (checks, watches_module):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.mark.parametrize("plural", OTHERS)
async def test_livez_fails_without_a_watch_for_long(
    monkeypatch: pytest.MonkeyPatch, plural: str
) -> None:
    clock, watches = Clock(monkeypatch), Watches(60)
    check = WatchCheck(watches, plural)
    await read(monkeypatch, watches, OTHERS[plural])
    clock.now += 120
    assert check.is_live() == ""
    clock.now += 1
    assert check.is_live() == NO_WATCH
    await read(monkeypatch, watches, plural)
    assert check.is_live() == ""


async def test_an_optional_kind_is_checked_once_it_was_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, watches = Clock(monkeypatch), Watches(60)
    check = WatchCheck(watches, "workerpools", is_required=False)
    clock.now += 121
    assert check.is_live() == ""
    await asyncio.create_task(read(monkeypatch, watches, "workerpools"))
    assert check.is_live() == ""
    clock.now += 121
    assert check.is_live() == NO_WATCH


async def test_livez_names_the_watch_of_a_namespace_that_was_not_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, watches = Clock(monkeypatch), Watches(60)
    check = WatchCheck(watches, "jobgroups")
    await read(monkeypatch, watches, "namespaces/one/jobgroups")
    clock.now += 100
    await read(monkeypatch, watches, "namespaces/two/jobgroups")
    clock.now += 100
    assert check.is_live() == NO_WATCH
    await read(monkeypatch, watches, "namespaces/one/jobgroups")
    assert check.is_live() == ""


async def test_the_watch_of_a_namespace_that_is_not_watched_any_more_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, watches = Clock(monkeypatch), Watches(60)
    check = WatchCheck(watches, "jobgroups")
    await asyncio.create_task(read(monkeypatch, watches, "namespaces/one/jobgroups"))
    clock.now += 100
    await read(monkeypatch, watches, "namespaces/two/jobgroups")
    clock.now += 100
    assert check.is_live() == ""


async def test_readyz_fails_after_a_silent_watch_and_livez_after_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Clock(monkeypatch)  # stands still
    watches = Watches(0)  # every watch that has to wait is silent
    check = WatchCheck(watches, "jobgroups")
    for ready, live in (("silent for 0 s", ""), ("silent for 0 s", "silent for 0 s")):
        await watch(monkeypatch, watches, hanging)
        assert (check.is_ready(), check.is_live()) == (ready, live)
    await watch(monkeypatch, watches, ending)
    assert (check.is_ready(), check.is_live()) == ("", "")


async def read(monkeypatch: pytest.MonkeyPatch, watches: Watches, path: str) -> None:
    """List a kind as kopf does, without a server."""

    async def answer(_: str) -> dict[str, Any]:
        return {"metadata": {}, "items": []}

    monkeypatch.setattr(watches_module, "_get", answer)
    await watches.get(f"/apis/{API_VERSION}/{path}")


async def watch(monkeypatch: pytest.MonkeyPatch, watches: Watches, stream: Any) -> None:
    """Watch JobGroups as kopf does, without a server, until the watch ends."""
    monkeypatch.setattr(watches_module, "_stream", stream)
    async for _ in watches.stream(f"/apis/{API_VERSION}/jobgroups?watch=true"):
        pass


async def hanging(_: str) -> AsyncIterator[Any]:
    await asyncio.Event().wait()
    yield


async def ending(_: str) -> AsyncIterator[Any]:
    return
    yield
