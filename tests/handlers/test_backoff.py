"""What reads from Redis continues soon after an outage, however long that was."""

import asyncio
from collections.abc import Awaitable
from types import ModuleType
from typing import Any, cast

import pytest

from handlers.jobgroups import follower
from handlers.jobgroups.cache import ObjectCache
from handlers.jobgroups.follower import Follower
from handlers.kube.client import ApiClient
from handlers.kube.workqueue import WorkQueue
from handlers.workerpools import controller
from handlers.workerpools.controller import PoolController
from handlers.workerpools.scaler import Scaler
from handlers.workerpools.worker_check import WorkerCheck
from jobgroup import Store
from jobgroup.model.clock import backoff
from jobgroup.store.connection import connect
from testbed.support.waiting import eventually
from tests.handlers.workerpools.test_scaler import pool_of

FAILURES = 12


def follow(store: Store) -> Awaitable[None]:
    return Follower(store, "owner", "reader", (), ObjectCache(), WorkQueue()).follow_changes()


def count_pools(store: Store) -> Awaitable[None]:
    queue = WorkQueue[Any]()
    check = WorkerCheck(store.queues, "bull")
    pools = PoolController(cast(ApiClient, None), store.queues, queue, cast(Scaler, None), check)
    ref, body = pool_of("shipping", "shipping")
    # It is reported already, so nothing is written.
    reported = {"type": "Ready", "status": "False", "reason": "RedisUnavailable", "message": ""}
    pools.enqueue(ref, {**body, "status": {"conditions": [reported]}})
    return pools._count_forever()


@pytest.mark.server
@pytest.mark.parametrize(
    ("module", "loop"), [(follower, follow), (controller, count_pools)], ids=["follow", "pools"]
)
async def test_a_loop_looks_for_redis_every_second(
    module: ModuleType, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def record(*given: Any) -> float:
        waits.append(backoff(*given))
        return 0

    monkeypatch.setattr(module, "backoff", record)
    async with connect("redis://127.0.0.1:1") as redis:
        running = asyncio.ensure_future(loop(Store(redis)))

        async def fails_often() -> bool:
            return len(waits) >= FAILURES or running.done()

        await eventually(fails_often)
        running.cancel()
        await asyncio.wait([running])
    assert len(waits) >= FAILURES
    assert max(waits) < 2
