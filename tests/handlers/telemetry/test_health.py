"""/livez fails when a part of the operator does not run, and names it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.references import Resource

from handlers.jobgroups.follower import Follower
from handlers.kube import leader
from handlers.settings import read_settings
from handlers.startup import Operator
from handlers.telemetry import checks
from handlers.telemetry.checks import DEAD_SECONDS, WatchCheck, check_progress
from handlers.workerpools.controller import PoolController
from jobgroup import Driver
from testbed.servers.operator import ask, environment
from testbed.servers.processes import free_port
from testbed.support.resources import manifest
from testbed.support.stages import PAY, PREFIX, Stage
from testbed.support.waiting import eventually, wait_for

IMPATIENT = Path(__file__).parent / "impatient.py"
NO_PROGRESS = "no progress for 120 s"
NO_WATCH = "no watch for 120 s"
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
    loop.alive_at = time.monotonic() - DEAD_SECONDS - 1
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


@pytest.mark.parametrize("plural", ["jobgroups", "workerpools"])
async def test_livez_fails_without_a_watch_for_long(
    monkeypatch: pytest.MonkeyPatch, plural: str
) -> None:
    now = float(round(time.monotonic()))  # whole seconds: sums and differences are exact
    monkeypatch.setattr(time, "monotonic", lambda: now)
    others = {"jobgroups": "workerpools", "workerpools": "jobgroups"}
    check = WatchCheck(plural)
    with watcher(others[plural]):
        assert check() == ""
        now += DEAD_SECONDS
        assert check() == ""
        now += 1
        assert check() == NO_WATCH
        with watcher(plural):
            assert check() == ""


async def test_an_optional_kind_is_checked_once_it_was_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = float(round(time.monotonic()))  # whole seconds: sums and differences are exact
    monkeypatch.setattr(time, "monotonic", lambda: now)
    check = WatchCheck("workerpools", is_required=False)
    for _ in range(2):
        assert check() == ""
        now += DEAD_SECONDS + 1
    with watcher("workerpools"):
        assert check() == ""
    await asyncio.sleep(0)  # so that the cancelled task ends
    assert check() == ""
    now += DEAD_SECONDS + 1
    assert check() == NO_WATCH


@contextmanager
def watcher(plural: str) -> Iterator[None]:
    """Run a task with the name that kopf gives to a watcher of this kind."""
    name = f"watcher for {Resource('jobgroups.dev', 'v1alpha1', plural)}@None"
    task = asyncio.create_task(asyncio.Event().wait(), name=name)
    yield
    task.cancel()


async def test_the_watch_check_knows_the_task_names_of_kopf(stage: Stage) -> None:
    operator = stage.operator(script=IMPATIENT)
    await stage.worker()
    stage.resources.apply(manifest("order", PAY))
    stage.resources.reaches("order", state="COMPLETED")

    def is_watching() -> bool:
        # Without a watch, the first probe starts the timeout and the second probe fails.
        probes = [operator.probe("/livez") for _ in range(2)]
        return all(code and "no watch" not in text for code, text in probes)

    wait_for(is_watching)
