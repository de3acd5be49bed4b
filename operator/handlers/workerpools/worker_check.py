"""Finds pools whose jobs no worker runs, although their workloads should have replicas.

The replicas of a workload can be changed by anyone, and a pool at rest does not read its workload.
If somebody stops all workers, the queue has no new event: its jobs wait. So a loop looks for such
pools and adds them to the work queue; the reconcile then reads the workload.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable

from handlers.kube.refs import Ref
from handlers.kube.workqueue import WorkQueue
from handlers.workerpools.pool import Pool
from jobgroup.resource.listeners import has_worker, is_unserved
from jobgroup.store.connection import RedisError, leave_if_cancelled
from jobgroup.store.queues import Queues

# How often to look for such pools.
CHECK_SECONDS = 1.0
# A workload that was read within this time is not read again because of this check.
REREAD_SECONDS = 5.0


class WorkerCheck:
    """Compares the jobs of pools with the workers that are connected to Redis."""

    def __init__(self, queues: Queues, prefix: str) -> None:
        self._queues = queues
        self._prefix = prefix

    async def run(self, pools: Iterable[Pool], queue: WorkQueue[Ref]) -> None:
        """Add pools whose jobs no worker runs to the work queue, forever."""
        while True:
            leave_if_cancelled()
            await asyncio.sleep(CHECK_SECONDS)
            with contextlib.suppress(RedisError):  # the controller reports it
                for pool in await self.unserved(pools):
                    queue.add(pool.ref)

    async def unserved(self, pools: Iterable[Pool]) -> list[Pool]:
        """Return the pools that have replicas, and jobs that no worker runs.

        Redis lists its connections only if there are such jobs.
        """
        candidates = [pool for pool in pools if _should_work(pool)]
        if not candidates:
            return []
        names = await self._queues.connections()
        return [pool for pool in candidates if self._is_unserved(pool, names)]

    def _is_unserved(self, pool: Pool, names: frozenset[str] | None) -> bool:
        connected = None if names is None else has_worker(self._prefix, pool.queue, names)
        return pool.backlog is not None and is_unserved(pool.backlog, connected)


def _should_work(pool: Pool) -> bool:
    """Return whether the pool has jobs and, when its workload was read, had replicas for them."""
    if pool.backlog is None or pool.workload is None or pool.bounds.paused:
        return False
    is_stale = pool.read_at + REREAD_SECONDS <= time.monotonic()
    return is_stale and pool.backlog.demand > 0 and pool.workload.replicas > 0
