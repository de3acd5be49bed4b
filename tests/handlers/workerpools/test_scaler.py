"""The controller and the scaler of WorkerPools without servers: races and errors."""

import asyncio
import contextlib
import itertools
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from handlers.kube import workqueue
from handlers.kube.client import ApiClient, ApiError
from handlers.kube.refs import Ref
from handlers.kube.workqueue import WorkQueue
from handlers.workerpools.controller import WORKERS, PoolController
from handlers.workerpools.pool import Pool
from handlers.workerpools.scaler import Scaler, settle_seconds
from handlers.workerpools.targets import Targets
from handlers.workerpools.worker_check import WorkerCheck
from jobgroup.model.backlog import Backlog
from jobgroup.resource.kinds import WORKERPOOL
from jobgroup.resource.workload import Workload
from jobgroup.store.queues import Queues

# A timeout for a test that hangs.
PATIENCE = 30
NOTHING = Backlog(True, False, 0, 0, 0, 0, 0, None, "1-0")
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment"}
SPEC = {
    "minReplicas": 1,
    "maxReplicas": 5,
    "jobsPerReplica": 5,
    "cooldownSeconds": 60,
    "paused": False,
}


def pool_of(name: str, queue: str, namespace: str = "shop") -> tuple[Ref, dict[str, Any]]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": name, "generation": 1}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {**SPEC, "queueName": queue, "scaleTargetRef": {**TARGET, "name": name}}
    body = {"kind": WORKERPOOL.name, "metadata": metadata, "spec": spec}
    return Ref(namespace, name, name, WORKERPOOL.plural), body


def controller(queues: Queues, queue: WorkQueue[Ref]) -> PoolController:
    """Return a controller without an API server."""
    check = WorkerCheck(queues, "bull")
    return PoolController(cast(ApiClient, None), queues, queue, cast(Scaler, None), check)


def test_a_pool_that_becomes_due_meanwhile_is_counted_with_the_others_of_its_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(0, 0.002)
    monkeypatch.setattr(workqueue, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    # Each call takes 2 ms. The delays make the pool of `orders` due after different calls.
    for delay in range(40):
        queue = WorkQueue[Ref]()
        pools = controller(cast(Queues, None), queue)
        (first, first_body), *rest = [
            pool_of(*each) for each in (("a", "mail"), ("p1", "orders"), ("p2", "orders"))
        ]
        for ref, body in rest:
            pools.enqueue(ref, body)
            queue.discard(ref)
        pools.enqueue(first, first_body)
        queue.add_after(rest[0][0], delay / 1000)
        taken = {pool.ref.name for pool in pools._take_due()}
        assert ("p1" in taken) == ("p2" in taken), (delay, taken)


async def test_a_failed_read_does_not_make_a_workload_fresh() -> None:
    async def plural(*_: Any) -> str:
        return "deployments"

    async def find(*_: Any) -> None:
        raise ApiError(503, "the API server is overloaded")

    api = cast(ApiClient, SimpleNamespace(plural=plural, find=find))
    pool = Pool(*pool_of("payers", "payments"))
    pool.workload, pool.read_at = Workload("/path", "1", 1, 1), time.monotonic() - 60
    scaler = Scaler(api, cast(Queues, None), Targets(api), lambda: True)
    for _ in range(3):
        with pytest.raises(ApiError, match="overloaded"):
            await scaler.scale(pool, NOTHING)


@pytest.mark.parametrize(("minutes", "seconds"), [(0, 2), (1, 5), (60, 5)])
def test_a_workload_whose_replicas_are_not_ready_is_read_every_few_seconds(
    minutes: int, seconds: int
) -> None:
    pool = Pool(*pool_of("mail", "mail"), scaled_at=time.monotonic() - minutes * 60)
    assert settle_seconds(pool, Workload("/path", "1", 3, 1)) == pytest.approx(seconds)
    assert settle_seconds(pool, Workload("/path", "1", 3, 3)) is None


async def test_the_controller_stops_although_a_call_suppressed_the_cancellation() -> None:
    entered = asyncio.Event()

    async def suppress(_: Pool, __: Backlog) -> None:
        entered.set()
        with contextlib.suppress(asyncio.CancelledError):  # as redis-py does at some awaits
            await asyncio.sleep(100)

    async def backlogs(queues: list[Any]) -> list[Backlog]:
        return [NOTHING for _ in queues]

    async def stirred(_: Any, __: float) -> set[str]:
        await asyncio.sleep(100)
        return set()

    queues = cast(Queues, SimpleNamespace(backlogs=backlogs, stirred=stirred))
    pools = controller(queues, WorkQueue())
    pools._scaler = cast(Scaler, SimpleNamespace(scale=suppress))
    pools.enqueue(*pool_of("payers", "payments"))
    running = asyncio.create_task(pools.run())
    await entered.wait()
    running.cancel()
    await asyncio.wait({running}, timeout=PATIENCE)
    assert running.done()


async def test_a_neighbour_is_scaled_before_all_pools_that_were_counted_earlier() -> None:
    scaled: list[str] = []
    counted, last = asyncio.Event(), asyncio.Event()

    async def scale(pool: Pool, _: Backlog) -> None:
        scaled.append(pool.ref.name)
        if len(scaled) == WORKERS:  # all are busy
            pools.enqueue(*pool_of("neighbour", "neighbour", "bank"))
        if len(scaled) == 101:
            last.set()
        await counted.wait()

    async def backlogs(queues: list[Any]) -> list[Backlog]:
        if ("neighbour", 60_000) in queues:
            counted.set()
        return [NOTHING for _ in queues]

    async def stirred(_: Any, __: float) -> set[str]:
        return set()

    queues = cast(Queues, SimpleNamespace(backlogs=backlogs, stirred=stirred))
    scaler = cast(Scaler, SimpleNamespace(scale=scale))
    pools = controller(queues, WorkQueue())
    pools._scaler = scaler
    for number in range(100):
        pools.enqueue(*pool_of(f"flood-{number}", f"flood-{number}"))
    running = asyncio.create_task(pools.run())
    async with asyncio.timeout(PATIENCE):
        await last.wait()
    running.cancel()
    assert scaled.index("neighbour") in (WORKERS, WORKERS + 1)
