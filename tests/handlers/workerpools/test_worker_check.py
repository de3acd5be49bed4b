"""Which pools are checked for workers, and when Redis has to list its connections."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from handlers.workerpools.pool import Pool
from handlers.workerpools.worker_check import REREAD_SECONDS, WorkerCheck
from jobgroup.resource.workload import Workload
from jobgroup.store.queues import Queues
from tests.handlers.workerpools.test_scaler import NOTHING, pool_of

WAITING = replace(NOTHING, waiting=12)
SETTLED = Workload("/path", "1", 3, 3)


def at_rest(**known: Any) -> Pool:
    """Return a pool with waiting jobs and replicas, whose workload was read long ago."""
    pool = Pool(*pool_of("payers", "payments"))
    pool.backlog, pool.workload = WAITING, SETTLED
    pool.read_at = time.monotonic() - REREAD_SECONDS - 1
    for name, value in known.items():
        setattr(pool, name, value)
    return pool


def listing(*names: str) -> tuple[WorkerCheck, list[None]]:
    """Return a check on a Redis with these connections, and a list of its calls."""
    calls: list[None] = []

    async def connections() -> frozenset[str]:
        calls.append(None)
        return frozenset(names)

    return WorkerCheck(cast(Queues, SimpleNamespace(connections=connections)), "bull"), calls


async def test_a_pool_with_jobs_and_without_workers_is_returned() -> None:
    check, calls = listing("", "bull:others")
    pools = [at_rest(), at_rest()]
    assert await check.unserved(pools) == pools
    assert len(calls) == 1


async def test_a_pool_with_a_worker_that_runs_a_job_is_not_returned() -> None:
    check, _ = listing("bull:payments")
    assert await check.unserved([at_rest(backlog=replace(WAITING, active=1))]) == []


@pytest.mark.parametrize(
    "known",
    [
        {"backlog": None},
        {"backlog": NOTHING},
        {"workload": None},
        {"workload": replace(SETTLED, replicas=0)},
    ],
    ids=str,
)
async def test_a_pool_without_jobs_or_replicas_costs_no_call(known: dict[str, Any]) -> None:
    check, calls = listing()
    assert await check.unserved([at_rest(**known)]) == []
    assert calls == []


async def test_a_paused_pool_is_not_checked() -> None:
    check, calls = listing()
    pool = at_rest()
    pool.body["spec"]["paused"] = True
    assert await check.unserved([pool]) == []
    assert calls == []


async def test_a_workload_that_was_just_read_is_not_read_again() -> None:
    check, calls = listing()
    assert await check.unserved([at_rest(read_at=time.monotonic())]) == []
    assert calls == []
