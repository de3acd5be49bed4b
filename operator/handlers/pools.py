"""WorkerPools: what waits in a queue -> the replicas of a workload, through its scale subresource.

One loop for all pools. It reads every queue that stirred in one call and then blocks on the event
streams of all of them, from the very moment of that reading on: so no job goes unheard, and nobody
polls. Pools are few and small; they are kept in memory whole.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handlers.cluster import ApiError, Cluster, Conflict, Ref
from handlers.failpoints import failpoint
from jobgroup.connection import RedisError, backoff, leave_if_cancelled
from jobgroup.news import event_of
from jobgroup.pool import bounds_of
from jobgroup.pool_status import Scaling, Workload, pool_status
from jobgroup.replicas import Backlog, desired_replicas, wake_in
from jobgroup.status import Trouble
from jobgroup.store import Store, now_ms

logger = logging.getLogger(__name__)

# A burst is one look: jobs that come within this time are counted together.
GATHER_SECONDS = 0.1
# A pool is looked at this often even if nothing stirs.
SLOW_SECONDS = 120.0
# And this often while its workload is on its way to what was asked for.
SETTLE_SECONDS = 2.0
# Counts alone are written at most this often.
PACE_SECONDS = 5.0
AT_ONCE = 20

Body = dict[str, Any]


@dataclass(slots=True)
class Pool:
    """One pool, and what is remembered of it between two looks."""

    ref: Ref
    body: Body
    due: float = 0.0
    event: str = "$"
    calm_since: float | None = None
    written_at: float = 0.0
    failures: int = 0

    @property
    def queue(self) -> str:
        return str(self.body["spec"]["queueName"])

    @property
    def target(self) -> tuple[str, str, str, str]:
        """Name the workload; two pools must not have the same."""
        target = self.body["spec"]["scaleTargetRef"]
        return self.ref.namespace, target["apiVersion"], target["kind"], target["name"]

    @property
    def age(self) -> tuple[str, str]:
        """Tell which of two pools was first."""
        return self.body["metadata"]["creationTimestamp"], self.ref.uid


@dataclass(slots=True)
class Pools:
    """All pools, and the loop that scales them."""

    cluster: Cluster
    store: Store
    _pools: dict[str, Pool] = field(default_factory=dict)
    _noticed: asyncio.Event = field(default_factory=asyncio.Event)
    _plurals: dict[tuple[str, str], str] = field(default_factory=dict)

    def notice(self, ref: Ref, body: Body) -> None:
        """Hear of a pool."""
        if "deletionTimestamp" in body["metadata"]:
            self.forget(ref)
            return
        known = self._pools.get(ref.uid)
        if known is None:
            self._pools[ref.uid] = Pool(ref, body)
        else:
            changed = known.body["metadata"]["generation"] != body["metadata"]["generation"]
            known.body = body
            if not changed:
                return
            known.due = 0.0
        self._noticed.set()

    def forget(self, ref: Ref) -> None:
        """Hear that a pool is gone; the workload stays as it is, and another may have it now."""
        gone = self._pools.pop(ref.uid, None)
        for pool in self._pools.values():
            if gone and pool.target == gone.target:
                pool.due = 0.0
        self._noticed.set()

    async def run(self) -> None:
        """Look at pools that are due or stirred, for ever."""
        failures = 0
        while True:
            leave_if_cancelled()
            try:
                await self.look()
                await self._wait()
                failures = 0
            except RedisError as error:
                failures += 1
                if failures == 1:
                    logger.warning("pools hold, for Redis does not answer: %s", error)
                    trouble = Trouble("RedisUnavailable", str(error), stalled=False)
                    await self._all(list(self._pools.values()), {}, trouble)
                await asyncio.sleep(backoff(failures))

    async def look(self) -> None:
        """Look at every pool that is due."""
        now = time.monotonic()
        due = [pool for pool in self._pools.values() if pool.due <= now]
        if not due:
            return
        horizons = [(p.queue, p.body["spec"]["cooldownSeconds"] * 1000) for p in due]
        found = await self.store.backlogs(horizons)
        backlogs = {pool.ref.uid: backlog for pool, backlog in zip(due, found, strict=True)}
        for pool in due:
            pool.event = backlogs[pool.ref.uid].event
        await self._all(due, backlogs)

    async def _all(
        self, pools: list[Pool], backlogs: Mapping[str, Backlog], trouble: Trouble | None = None
    ) -> None:
        left = iter(pools)

        async def lane() -> None:
            for pool in left:
                await self._attend(pool, backlogs.get(pool.ref.uid), trouble)

        await asyncio.gather(*(lane() for _ in range(AT_ONCE)))

    async def _wait(self) -> None:
        """Wait until a queue stirs, a pool is due, or one is new."""
        await asyncio.sleep(GATHER_SECONDS)
        if not self._pools:
            await self._noticed.wait()
        self._noticed.clear()
        soonest = min((pool.due for pool in self._pools.values()), default=0.0)
        wait = soonest - time.monotonic()
        seen = {pool.queue: pool.event for pool in self._pools.values() if pool.event != "$"}
        if wait <= 0 or not seen:
            return
        stirred = await self.store.stirred(seen, min(wait, 1.0))
        for pool in self._pools.values():
            if pool.queue in stirred:
                pool.due = 0.0

    async def _attend(self, pool: Pool, backlog: Backlog | None, trouble: Trouble | None) -> None:
        """Look at one pool; an error holds up no other."""
        pool.due = time.monotonic() + SLOW_SECONDS
        context = {"namespace": pool.ref.namespace, "workerpool": pool.ref.name}
        try:
            if backlog is None:
                await self._report(pool, pool_status(pool.body, now_ms(), trouble=trouble))
            else:
                await self._scale(pool, backlog)
            pool.failures = 0
        except Conflict:
            # The workload or the pool has changed since it was read.
            await self._refresh(pool)
        except ApiError as error:
            pool.failures += 1
            pool.due = time.monotonic() + backoff(pool.failures)
            logger.warning("%s", error, extra=context)
        except Exception:
            pool.failures += 1
            pool.due = time.monotonic() + backoff(pool.failures)
            logger.exception("unexpected", extra=context)

    async def _refresh(self, pool: Pool) -> None:
        body = await self.cluster.read(pool.ref)
        if body is None:
            self.forget(pool.ref)
        else:
            pool.body = body
            pool.due = 0.0

    async def _scale(self, pool: Pool, backlog: Backlog) -> None:
        workload, trouble = await self._workload(pool)
        if workload is None or trouble:
            pool.calm_since = None
            status = pool_status(pool.body, now_ms(), backlog, workload, trouble=trouble)
            await self._report(pool, status)
            return
        now = time.monotonic()
        bounds = bounds_of(pool.body["spec"])
        decision = desired_replicas(bounds, backlog, workload.replicas, pool.calm_since, now)
        pool.calm_since = decision.calm_since
        scaling = None
        if decision.replicas != workload.replicas:
            scaling = Scaling(workload.replicas, decision.replicas, decision.reason)
            failpoint("scale")
            await self.cluster.scale(workload.path, workload.version, decision.replicas)
            event = event_of(scaling.news, pool.body, now_ms())
            await self.cluster.post_event(pool.ref.namespace, event)
        status = pool_status(pool.body, now_ms(), backlog, workload, decision, scaling)
        await self._report(pool, status)
        settled = scaling is None and workload.ready == workload.replicas
        waits = [decision.look_again_in, wake_in(bounds, backlog, now_ms())]
        waits += [SLOW_SECONDS if settled else SETTLE_SECONDS]
        due = now + min(wait for wait in waits if wait is not None)
        pool.due = min(pool.due, due)

    async def _workload(self, pool: Pool) -> tuple[Workload | None, Trouble | None]:
        """Find the workload, and what keeps the pool's hands off it."""
        older = [
            other
            for other in self._pools.values()
            if other.target == pool.target and other.age < pool.age
        ]
        if older:
            said = f"the WorkerPool {older[0].ref.name} scales the same workload and is older"
            return None, Trouble("Conflict", said)
        namespace, version, kind, name = pool.target
        plural = await self._plural(version, kind)
        folder = "/apis" if "/" in version else "/api"
        path = f"{folder}/{version}/namespaces/{namespace}/{plural}/{name}"
        found = await self.cluster.find("GET", path) if plural else None
        if found is None:
            return None, Trouble("TargetMissing", f"there is no {kind} {name} in {namespace}")
        workload = Workload(
            path,
            found["metadata"]["resourceVersion"],
            found["spec"].get("replicas", 1),
            (found.get("status") or {}).get("readyReplicas", 0),
        )
        if scaler := await self._other_scaler(namespace, kind, name):
            said = (
                f"the HorizontalPodAutoscaler {scaler} scales {kind} {name}; this pool stands back"
            )
            return workload, Trouble("HorizontalPodAutoscaler", said)
        return workload, None

    async def _plural(self, version: str, kind: str) -> str | None:
        if (version, kind) not in self._plurals:
            found = await self.cluster.plural(version, kind)
            if found is None:
                return None
            self._plurals[version, kind] = found
        return self._plurals[version, kind]

    async def _other_scaler(self, namespace: str, kind: str, name: str) -> str | None:
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        found = await self.cluster.find("GET", path)
        for each in (found or {}).get("items", ()):
            target = each["spec"]["scaleTargetRef"]
            if (target["kind"], target["name"]) == (kind, name):
                return str(each["metadata"]["name"])
        return None

    async def _report(self, pool: Pool, status: dict[str, Any]) -> None:
        """Write the status if it changed; counts alone not too often."""
        stands = pool.body.get("status") or {}
        if status == stands:
            return
        counts = {"backlog", "jobs"}
        telling = {name for name in status if status.get(name) != stands.get(name)} - counts
        wait = pool.written_at + PACE_SECONDS - time.monotonic()
        if not telling and wait > 0:
            pool.due = min(pool.due, time.monotonic() + wait)
            return
        pool.body = await self.cluster.patch_status(pool.body, status)
        pool.written_at = time.monotonic()
