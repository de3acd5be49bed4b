"""/livez goes red when something that must run is dead, and names it."""

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

import handlers.lease
from handlers import startup
from handlers.follow import Follower
from handlers.pools import Pools
from handlers.startup import DEAD_SECONDS, Operator, WatchCheck
from jobgroup import Driver
from jobgroup.settings import read_settings
from testbed.operators import ask, environment
from testbed.processes import free_port
from testbed.resources import manifest
from testbed.stages import PAY, PREFIX, Stage
from testbed.waiting import eventually, wait_for

IMPATIENT = Path(__file__).parent / "impatient.py"
LOOPS: dict[str, tuple[type[Any], str]] = {
    "driver": (Driver, "run"),
    "changes": (Follower, "hear_changes"),
    "pools": (Pools, "run"),
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
    """Be a loop that last came round too long ago."""
    loop.alive_at = time.monotonic() - DEAD_SECONDS - 1
    await asyncio.Event().wait()


async def test_all_is_well(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(stage, monkeypatch) as operator:
        assert await livez(operator) == (200, "ok\n")


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_loop_hangs(stage: Stage, monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    monkeypatch.setattr(*LOOPS[loop], hang)
    async with started(stage, monkeypatch) as operator:

        async def is_red() -> bool:
            return await livez(operator) == (503, f"{loop}: it is stuck\n")

        await eventually(is_red)


@pytest.mark.parametrize(("age", "said"), [(DEAD_SECONDS, ""), (DEAD_SECONDS + 1, "it is stuck")])
def test_a_loop_may_take_its_time(monkeypatch: pytest.MonkeyPatch, age: int, said: str) -> None:
    monkeypatch.setattr(startup, "time", SimpleNamespace(monotonic=lambda: 1000.0 + age))
    assert startup._is_stuck(1000.0) == said


async def test_the_lease_ran_out(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(stage, monkeypatch) as operator:
        check, reconciler = operator._health.live["lease"], operator.reconciler
        assert reconciler is not None
        assert (check(), reconciler._steps._leads()) == ("", True)
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + handlers.lease.LENGTH_SECONDS)
        with monkeypatch.context() as moved:
            moved.setattr(handlers.lease, "time", later)
            assert (check(), reconciler._steps._leads()) == ("it is lost", False)


@pytest.mark.parametrize("plural", ["jobgroups", "workerpools"])
async def test_it_is_not_alive_when_nobody_has_watched_for_long(
    monkeypatch: pytest.MonkeyPatch, plural: str
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    others = {"jobgroups": "workerpools", "workerpools": "jobgroups"}
    check = WatchCheck(plural)
    with watcher(others[plural]):
        assert check() == ""
        now += DEAD_SECONDS
        assert check() == ""
        now += 1
        assert check() == "nobody watches"
        with watcher(plural):
            assert check() == ""


async def test_a_kind_that_is_not_installed_is_not_missed_but_one_that_was_watched_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    check = WatchCheck("workerpools", is_needed=False)
    for _ in range(2):
        assert check() == ""
        now += DEAD_SECONDS + 1
    with watcher("workerpools"):
        assert check() == ""
    await asyncio.sleep(0)  # for the task to end
    assert check() == ""
    now += DEAD_SECONDS + 1
    assert check() == "nobody watches"


@contextmanager
def watcher(plural: str) -> Iterator[None]:
    """Have a task of the name that kopf gives to those who watch such objects."""
    name = f"watcher for {Resource('jobgroups.dev', 'v1alpha1', plural)}@None"
    task = asyncio.create_task(asyncio.Event().wait(), name=name)
    yield
    task.cancel()


async def test_the_tasks_are_named_as_kopf_names_them(stage: Stage) -> None:
    operator = stage.operator(script=IMPATIENT)
    await stage.worker()
    stage.resources.apply(manifest("order", PAY))
    stage.resources.reaches("order", state="COMPLETED")

    def is_watching() -> bool:
        # If nobody watched, the first would notice and the second say so.
        probes = [operator.probe("/livez") for _ in range(2)]
        return all(code and "nobody watches" not in text for code, text in probes)

    wait_for(is_watching)
