"""One pool: read its workload, decide, scale, and say so. It never matters what woke it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from handlers.cluster import ApiError, Cluster, Ref
from handlers.failpoints import failpoint
from handlers.targets import Target, Targets, refused
from jobgroup.conditions import Trouble
from jobgroup.news import event_of
from jobgroup.pool import bounds_of
from jobgroup.pool_status import Scaling, Workload, pool_status, tells_more
from jobgroup.queues import Queues, now_ms
from jobgroup.replicas import Backlog, Bounds, Decision, desired_replicas, wake_in

# A pool is looked at this often while something keeps it from its workload,
TROUBLED_SECONDS = 10.0
# and this often while its workload is on its way to what was asked for, less often as time passes.
SETTLE_SECONDS = (2.0, 30.0)
# A workload that needs no change is not read more often than this, however busy its queue is.
FRESH_SECONDS = 1.0
# Counts alone are written at most this often.
PACE_SECONDS = 5.0

Body = dict[str, Any]


@dataclass(slots=True)
class Pool:
    """One pool, and what is remembered of it between two looks."""

    ref: Ref
    body: Body
    due: float = 0.0
    busy: bool = False
    is_new: bool = True
    event: str = ""
    calm_since: float | None = None
    written_at: float = 0.0
    failures: int = 0
    checked_at: float = field(default_factory=time.monotonic)
    workload: Workload | None = None
    read_at: float = 0.0
    scaled_at: float = 0.0
    # A scaling that was asked for, and no answer came yet;
    asked: Scaling | None = None
    # and one that was done, and no status tells of it yet.
    untold: Scaling | None = None

    @property
    def queue(self) -> str:
        return str(self.body["spec"]["queueName"])

    @property
    def bounds(self) -> Bounds:
        return bounds_of(self.body["spec"])

    @property
    def horizon(self) -> tuple[str, int]:
        """Name the queue, and the milliseconds within which delayed jobs count."""
        return self.queue, self.bounds.horizon_seconds * 1000

    @property
    def target(self) -> Target:
        """Name the workload; two pools must not have the same."""
        target = self.body["spec"]["scaleTargetRef"]
        return self.ref.namespace, target["apiVersion"], target["kind"], target["name"]

    @property
    def age(self) -> tuple[str, str]:
        """Tell which of two pools was first."""
        return self.body["metadata"]["creationTimestamp"], self.ref.uid

    @property
    def generation(self) -> int:
        return int(self.body["metadata"]["generation"])

    def learn(self, body: Body) -> None:
        """Take what was read or written, unless a newer wish is known; look at a new one."""
        newer = body["metadata"]["generation"] - self.generation
        if newer >= 0:
            self.body = body
        if newer > 0:
            self.due = 0.0

    def decide(self, backlog: Backlog, current: int) -> Decision:
        return desired_replicas(self.bounds, backlog, current, self.calm_since, time.monotonic())

    def look_within(self, seconds: float) -> None:
        self.due = min(self.due, time.monotonic() + seconds)


def unreadable(refusal: str) -> Trouble:
    """Say that a queue cannot be counted."""
    return Trouble("RedisError", refusal, stalled=False)


class Scaler:
    """Scales workloads, one pool a call."""

    def __init__(self, cluster: Cluster, queues: Queues, leads: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._queues = queues
        self._leads = leads
        self._targets = Targets(cluster)

    async def stand_back(
        self, pool: Pool, trouble: Trouble, backlog: Backlog | None = None
    ) -> None:
        """Say why nothing is scaled, and look again soon: it may pass by itself."""
        pool.calm_since = None
        workload, pool.workload = pool.workload, None
        pool.look_within(TROUBLED_SECONDS)
        status = pool_status(pool.body, now_ms(), backlog, workload, None, pool.untold, trouble)
        await self._report(pool, status)

    async def scale(self, pool: Pool, backlog: Backlog) -> None:
        """Bring a workload to what its queue needs."""
        if trouble := await self._read_workload(pool, backlog):
            await self.stand_back(pool, trouble, backlog)
            return
        workload = pool.workload
        assert workload is not None, "just read"  # noqa: S101 (for the type checker)
        decision = pool.decide(backlog, workload.replicas)
        if decision.replicas < workload.replicas:
            # A job may have begun while the workload was read, or even come and gone.
            (again,) = await self._queues.backlogs([pool.horizon])
            if isinstance(again, str):
                await self.stand_back(pool, unreadable(again))
                return
            if again.event != backlog.event:
                pool.calm_since = None
            backlog = again
            decision = pool.decide(backlog, workload.replicas)
        pool.calm_since = decision.calm_since
        if trouble := await self._change(pool, workload, decision):
            await self.stand_back(pool, trouble, backlog)
            return
        if pool.untold or workload.ready != workload.replicas:
            first, longest = SETTLE_SECONDS
            patience = (time.monotonic() - pool.scaled_at) / 5
            pool.look_within(min(max(first, patience), longest))
        for wait in (decision.look_again_in, wake_in(pool.bounds, backlog)):
            if wait is not None:
                pool.look_within(wait)
        status = pool_status(pool.body, now_ms(), backlog, workload, decision, pool.untold)
        await self._report(pool, status)

    async def _read_workload(self, pool: Pool, backlog: Backlog) -> Trouble | None:
        """Read the workload, unless it was just read and needs no change."""
        now, known = time.monotonic(), pool.workload
        fresh = pool.read_at + FRESH_SECONDS - now
        if known and fresh > 0 and pool.decide(backlog, known.replicas).replicas == known.replicas:
            pool.look_within(fresh)
            return None
        pool.workload, trouble = await self._targets.find(pool.target)
        pool.read_at = now
        if pool.workload and pool.asked:
            # The answer was lost; the workload tells what it was.
            if pool.workload.replicas == pool.asked.after:
                pool.untold = pool.asked
            pool.asked = None
        return trouble

    async def _change(self, pool: Pool, workload: Workload, decision: Decision) -> Trouble | None:
        """Scale the workload if it needs to be, and is still as it was read."""
        if decision.replicas == workload.replicas:
            return None
        if not self._leads():
            # Jobs may have begun since the queue was read, and whoever leads now need not have
            # changed the workload.
            raise ApiError(0, "nothing is scaled: this replica does not lead any more")
        scaling = Scaling(workload.replicas, decision.replicas, decision.reason, workload.version)
        pool.workload, pool.asked, pool.scaled_at = None, scaling, time.monotonic()
        failpoint("scale")
        try:
            await self._cluster.scale(workload.path, workload.version, decision.replicas)
        except ApiError as error:
            if 400 <= error.code < 500:
                pool.asked = None
            return refused(error)
        pool.asked, pool.untold = None, scaling
        return None

    async def _report(self, pool: Pool, status: dict[str, Any]) -> None:
        """Write the status if it changed; counts alone not too often."""
        stands = pool.body.get("status") or {}
        if pool.untold:
            event = event_of(pool.untold.news, pool.body, now_ms())
            await self._cluster.post_event(pool.ref.namespace, event)
        if status == stands:
            return
        wait = pool.written_at + PACE_SECONDS - time.monotonic()
        if wait > 0 and not tells_more(status, stands):
            pool.look_within(wait)
            return
        pool.learn(await self._cluster.put_status(pool.body, status))
        pool.written_at = time.monotonic()
        pool.untold = None
