"""One WorkerPool: read its workload, decide, scale, report.

A reconcile does not depend on what triggered it. Each method returns after how many seconds the
pool must be reconciled again, or None.
"""

import time
from collections.abc import Callable
from typing import Any

from handlers.failpoints import failpoint
from handlers.kube.client import ApiClient, ApiError
from handlers.kube.leader import NotLeaderError
from handlers.kube.workqueue import soonest
from handlers.workerpools.pool import Pool
from handlers.workerpools.targets import Targets, refused
from jobgroup.model.backlog import Backlog
from jobgroup.model.clock import now_ms
from jobgroup.resource.conditions import Problem, redis_problem
from jobgroup.resource.events import to_kubernetes_event
from jobgroup.resource.replicas import Decision, wake_in
from jobgroup.resource.workerpool_status import Scaling, differs_beyond_counts, pool_status
from jobgroup.resource.workload import Workload
from jobgroup.store.queues import Queues

# The interval of reconciles of a pool that has a problem.
PROBLEM_SECONDS = 10.0
# The first and the longest interval of reads of a workload that has not reached its replicas.
SETTLE_SECONDS = (2.0, 5.0)
# A workload that needs no change is not read again within this time, however busy its queue is.
FRESH_SECONDS = 1.0
# The shortest time between two writes of counts alone.
PACE_SECONDS = 5.0


def unreadable(refusal: str) -> Problem:
    """Return the problem of a queue whose jobs cannot be counted."""
    return redis_problem(refusal, is_transient=False)


class Scaler:
    """Scales the workloads of pools."""

    def __init__(
        self, api: ApiClient, queues: Queues, targets: Targets, is_leader: Callable[[], bool]
    ) -> None:
        self._api = api
        self._queues = queues
        self._targets = targets
        self._is_leader = is_leader

    async def block(
        self, pool: Pool, problem: Problem, backlog: Backlog | None = None
    ) -> float | None:
        """Report a problem and scale nothing; the problem may disappear by itself."""
        pool.calm_since = None
        workload, pool.workload = pool.workload, None
        status = pool_status(pool.body, now_ms(), backlog, workload, None, pool.unreported, problem)
        return soonest(PROBLEM_SECONDS, await self._report(pool, status))

    async def scale(self, pool: Pool, backlog: Backlog) -> float | None:
        """Set the replicas of a workload to what its queue needs."""
        fresh = _fresh_seconds(pool, backlog)
        problem = None if fresh else await self._read_workload(pool)
        if problem:
            return await self.block(pool, problem, backlog)
        workload = pool.workload
        assert workload is not None, "just read"  # noqa: S101 (for the type checker)
        decision = pool.decide(backlog, workload.replicas)
        if decision.replicas < workload.replicas:
            # A job may have started while the workload was read, or even started and finished.
            (again,) = await self._queues.backlogs([pool.horizon])
            if isinstance(again, str):
                return await self.block(pool, unreadable(again))
            if again.event != backlog.event:
                pool.calm_since = None
            backlog = again
            decision = pool.decide(backlog, workload.replicas)
        pool.calm_since = decision.calm_since
        if problem := await self._change(pool, workload, decision):
            return await self.block(pool, problem, backlog)
        settle = settle_seconds(pool, workload)
        status = pool_status(pool.body, now_ms(), backlog, workload, decision, pool.unreported)
        return soonest(
            fresh,
            settle,
            decision.requeue_after,
            wake_in(pool.bounds, backlog),
            await self._report(pool, status),
        )

    async def _read_workload(self, pool: Pool) -> Problem | None:
        now = time.monotonic()
        pool.workload, problem = await self._targets.find(pool.target)
        pool.read_at = now  # not before: a workload is not fresh because its read failed
        if pool.workload and pool.requested:
            # The response was lost; the workload shows whether the scaling was carried out.
            if pool.workload.replicas == pool.requested.after:
                pool.unreported = pool.requested
            pool.requested = None
        return problem

    async def _change(self, pool: Pool, workload: Workload, decision: Decision) -> Problem | None:
        """Scale the workload if it needs to be scaled and has not changed since it was read."""
        if decision.replicas == workload.replicas:
            return None
        if not self._is_leader():
            # Jobs may have started since the queue was read, and the new leader may not have
            # changed the workload, so its resourceVersion does not protect it.
            raise NotLeaderError("lost the leader lease; the workload is not scaled")
        scaling = Scaling(workload.replicas, decision.replicas, decision.reason, workload.version)
        pool.workload, pool.requested, pool.scaled_at = None, scaling, time.monotonic()
        failpoint("scale")
        try:
            await self._api.scale(workload.path, workload.version, decision.replicas)
        except ApiError as error:
            if 400 <= error.code < 500:
                pool.requested = None
            return refused(error)
        pool.requested, pool.unreported = None, scaling
        return None

    async def _report(self, pool: Pool, status: dict[str, Any]) -> float | None:
        """Write the status if it changed; return how long a change of counts alone must wait."""
        current = pool.body.get("status") or {}
        if pool.unreported:
            event = to_kubernetes_event(pool.unreported.event, pool.body, now_ms())
            await self._api.post_event(pool.ref.namespace, event)
        if status == current:
            return None
        wait = pool.written_at + PACE_SECONDS - time.monotonic()
        if wait > 0 and not differs_beyond_counts(status, current):
            return wait
        pool.update(await self._api.put_status(pool.body, status))
        pool.written_at = time.monotonic()
        pool.unreported = None
        return None


def _fresh_seconds(pool: Pool, backlog: Backlog) -> float | None:
    """Return the seconds until a workload must be read again; None if it must be read now."""
    known, fresh = pool.workload, pool.read_at + FRESH_SECONDS - time.monotonic()
    if not known or fresh <= 0:
        return None
    return fresh if pool.decide(backlog, known.replicas).replicas == known.replicas else None


def settle_seconds(pool: Pool, workload: Workload) -> float | None:
    """Return after how many seconds to read a workload that has not reached its replicas.

    The interval grows with the time since the scaling.
    """
    if not pool.unreported and workload.ready in (workload.replicas, None):
        return None
    first, longest = SETTLE_SECONDS
    return min(max(first, (time.monotonic() - pool.scaled_at) / 5), longest)
