"""The controller of WorkerPools: jobs in queues -> replicas of workloads.

One loop blocks on the event streams of all queues and on the work queue. It takes all pools that
are due, counts the jobs of their queues in one call, and passes each pool with its count to a
worker. The next block starts at the event up to which the jobs were counted: no event is missed,
and nothing is polled. A workload that responds slowly occupies one worker and delays no other pool.
Pools are few and small, so all of them are kept in memory.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from handlers.kube.client import ApiClient, ApiError, Conflict
from handlers.kube.refs import Ref
from handlers.kube.turns import TurnQueue
from handlers.kube.worker import process
from handlers.kube.workqueue import WorkQueue, soonest
from handlers.workerpools.pool import Body, Pool
from handlers.workerpools.pools import Pools
from handlers.workerpools.scaler import Scaler, unreadable
from handlers.workerpools.worker_check import WorkerCheck
from jobgroup.model.backlog import Backlog
from jobgroup.model.clock import FAILOVER_SECONDS, backoff
from jobgroup.resource.conditions import Problem, redis_problem
from jobgroup.store.connection import RedisError, is_transient, leave_if_cancelled
from jobgroup.store.queues import Queues

logger = logging.getLogger(__name__)

# The jobs of a burst are counted together if they arrive within this time.
GATHER_SECONDS = 0.25
# A pool is reconciled at least this often.
RESYNC_SECONDS = 300.0
# The longest wait if there is no queue: the liveness probe expects progress.
IDLE_SECONDS = 30.0
# The number of pools that are reconciled at the same time.
WORKERS = 20


@dataclass(frozen=True, eq=False, slots=True)
class Counted:
    """A pool that was taken from the work queue, with the count of its jobs or a problem."""

    pool: Pool
    found: Backlog | Problem


class PoolController:
    """Keeps all pools, counts the jobs of their queues, and passes them to the scaler."""

    def __init__(
        self,
        api: ApiClient,
        queues: Queues,
        queue: WorkQueue[Ref],
        scaler: Scaler,
        check: WorkerCheck,
        ceiling: int | None = None,
    ) -> None:
        self.alive_at = time.monotonic()
        self._api = api
        self._queues = queues
        self._queue = queue
        self._scaler = scaler
        self._check = check
        self._ceiling = ceiling
        self._pools = Pools()
        self._ready = TurnQueue[Counted](lambda counted: counted.pool.ref.namespace)

    def enqueue(self, ref: Ref, body: Body) -> None:
        """Store a pool of a watch event, and reconcile it if it is new or its spec changed."""
        if "deletionTimestamp" in body["metadata"]:
            self.forget(ref)
            return
        known = self._pools.get(ref.uid)
        if known is None:
            pool = Pool(ref, body, self._ceiling)
            self._pools.add(pool)
            self._enqueue_rivals(pool)
        elif known.generation < body["metadata"]["generation"]:
            known.update(body)
            self._queue.add(ref)

    def forget(self, ref: Ref) -> None:
        """Drop a pool that was deleted; its workload keeps its replicas, or a rival scales it."""
        self._queue.discard(ref)
        if gone := self._pools.remove(ref.uid):
            self._enqueue_rivals(gone)

    def _enqueue_rivals(self, of: Pool) -> None:
        """Reconcile all pools of the same workload: which of them scales it may change."""
        for pool in self._pools.of_workload(of.target):
            self._queue.add(pool.ref)

    def statuses(self) -> list[tuple[Ref, Body]]:
        """Return the status of each pool."""
        return [(pool.ref, pool.body.get("status") or {}) for pool in self._pools]

    async def run(self) -> None:
        """Reconcile pools, forever."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work())
            tasks.create_task(self._check.run(self._pools, self._queue))
            await self._count_forever()

    async def _count_forever(self) -> None:
        failures = 0
        while True:
            leave_if_cancelled()
            self.alive_at = time.monotonic()
            try:
                await self._wait()
                await self._count()
                failures = 0
            except RedisError as error:
                failures += 1
                if failures == 1:
                    logger.warning("Redis failed; no pool scales until it answers: %s", error)
                self._block_all(error)
                await asyncio.sleep(backoff(failures, FAILOVER_SECONDS))

    async def _wait(self) -> None:
        """Wait until a queue has a new event or a pool is due, and then for the rest of a burst."""
        seen = {pool.queue: pool.event for pool in self._pools if pool.event}
        if seen:
            wait = max(0.0, self._queue.seconds_until_due())
            stirred = await self._queues.stirred(seen, wait)
            for pool in self._pools.of_queues(stirred):
                # Until its jobs are counted, the queue is not read: the same event would return.
                pool.event = ""
                self._queue.add(pool.ref)
        else:
            await self._queue.wait(IDLE_SECONDS)
        await asyncio.sleep(GATHER_SECONDS)

    async def _count(self) -> None:
        """Count the jobs of all pools that are due, and pass the pools to the workers."""
        pools = self._take_due()
        if not pools:
            return
        try:
            counts = await self._queues.backlogs([pool.horizon for pool in pools])
        except RedisError:
            for pool in pools:
                self._queue.done(pool.ref)
            raise
        for pool, count in zip(pools, counts, strict=True):
            if isinstance(count, str):
                pool.event, pool.backlog = "", None
                self._ready.put_nowait(Counted(pool, unreadable(count)))
                continue
            if count.event != pool.event:
                # Jobs may have come and gone: the queue is not calm.
                pool.calm_since = None
            pool.event, pool.backlog = count.event, count
            self._ready.put_nowait(Counted(pool, count))

    def _take_due(self) -> list[Pool]:
        """Take the pools that are due from the work queue, with all others of the same queues.

        They share the event after which the loop reads the queue, so each needs the same count.
        """
        taken: dict[Ref, Pool] = {}
        # Until nothing is due: meanwhile, pools of further queues can become due.
        while due := self._known(self._queue.get_due()):
            taken |= {pool.ref: pool for pool in due}
            for pool in self._pools.of_queues({pool.queue for pool in due}):
                if pool.ref not in taken:
                    self._queue.add(pool.ref)
        return list(taken.values())

    def _known(self, refs: Sequence[Ref]) -> list[Pool]:
        """Return the pools of these references; those of deleted pools are done."""
        known = []
        for ref in refs:
            if pool := self._pools.get(ref.uid):
                known.append(pool)
            else:
                self._queue.forget(ref)
                self._queue.done(ref)
        return known

    def _block_all(self, error: RedisError) -> None:
        """Report once, on each pool, that its jobs cannot be counted, and reconcile it soon."""
        message = f"the workload is left as it is: {error}"
        problem = redis_problem(message, is_transient(error))
        for pool in self._pools:
            pool.calm_since = None
            self._queue.add(pool.ref)
        for pool in self._known(self._queue.get_due()):
            self._queue.add(pool.ref)
            if pool.ready_condition[0] == problem.reason:
                self._queue.done(pool.ref)
            else:
                self._ready.put_nowait(Counted(pool, problem))

    async def _work(self) -> None:
        while True:
            leave_if_cancelled()
            counted = await self._ready.get()
            pool = counted.pool
            await process(self._queue, pool.ref, self._reconcile(pool, counted.found))
            pool.is_new = False

    async def _reconcile(self, pool: Pool, found: Backlog | Problem) -> float | None:
        """Reconcile one pool, unless it was deleted; return when to reconcile it again."""
        if pool.ref.uid not in self._pools:
            return None
        requeue_after = await self._scale(pool, found)
        return soonest(requeue_after, RESYNC_SECONDS) if pool.ref.uid in self._pools else None

    async def _scale(self, pool: Pool, found: Backlog | Problem) -> float | None:
        """Scale the workload, or report what prevents it."""
        try:
            is_due = pool.checked_at + RESYNC_SECONDS <= time.monotonic()
            if is_due and not await self._update(pool):
                return None
            if isinstance(found, Problem):
                return await self._scaler.block(pool, found)
            for rival in self._pools.older_rivals(pool):
                await self._update(rival)
            if conflict := self._pools.conflict(pool):
                pool.workload = None
                return await self._scaler.block(pool, conflict, found)
            return await self._scaler.scale(pool, found)
        except Conflict:
            # The workload or the pool has changed since it was read.
            pool.workload = None
            await self._update(pool)
            return 0.0
        except ApiError as error:
            if error.code != 404 or await self._update(pool):
                raise
            return None

    async def _update(self, pool: Pool) -> bool:
        """Read a pool; forget it if it is gone, enqueue it if its spec changed.

        A watch that starts again after an interruption does not report what was deleted meanwhile.
        Return whether the pool exists.
        """
        body = await self._api.read(pool.ref)
        pool.checked_at = time.monotonic()
        if body is None:
            self.forget(pool.ref)
            return False
        if pool.update(body):
            self._queue.add(pool.ref)
        return True
