"""WorkerPools: what waits in a queue -> the replicas of a workload, through its scale subresource.

One loop for all pools. It reads every queue that stirred in one call and then blocks on the event
streams of all of them, from the very moment of that reading on: so no job goes unheard, and nobody
polls. Pools are few and small; they are kept in memory whole.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from handlers.cluster import ApiError, Cluster, Conflict, Ref
from handlers.scaling import Body, Pool, Scaler
from jobgroup.conditions import Trouble
from jobgroup.connection import RedisError, backoff, is_transient, leave_if_cancelled
from jobgroup.queues import Queues
from jobgroup.replicas import Backlog

logger = logging.getLogger(__name__)

# A burst is one look: jobs that come within this time are counted together.
GATHER_SECONDS = 0.25
# A pool is looked at this often even if nothing stirs.
SLOW_SECONDS = 300.0
# Without any pool the loop comes round this often, so that it is seen to be alive.
ALONE_SECONDS = 30.0
# A pool that is new or changed is seen after this long at most.
BLOCK_SECONDS = 2.0
AT_ONCE = 20


@dataclass(slots=True)
class Pools:
    """All pools, and the loop that scales them."""

    cluster: Cluster
    queues: Queues
    alive_at: float = field(default_factory=time.monotonic)
    _pools: dict[str, Pool] = field(default_factory=dict)
    _noticed: asyncio.Event = field(default_factory=asyncio.Event)
    _scaler: Scaler = field(init=False)

    def __post_init__(self) -> None:
        self._scaler = Scaler(self.cluster, self.queues)

    def notice(self, ref: Ref, body: Body) -> None:
        """Hear of a pool; that only its status changed is no news."""
        if "deletionTimestamp" in body["metadata"]:
            self.forget(ref)
            return
        known = self._pools.get(ref.uid)
        if known is None:
            self._pools[ref.uid] = Pool(ref, body)
        elif known.body["metadata"]["generation"] != body["metadata"]["generation"]:
            known.body = body
            known.due = 0.0
        self._noticed.set()

    def forget(self, ref: Ref) -> None:
        """Hear that a pool is gone; the workload stays as it is, and another may have it now."""
        gone = self._pools.pop(ref.uid, None)
        for pool in self._pools.values():
            if gone and pool.target == gone.target:
                pool.due = 0.0
        self._noticed.set()

    def statuses(self) -> list[tuple[Ref, Body]]:
        """Return what the status of each pool says."""
        return [(pool.ref, pool.body.get("status") or {}) for pool in self._pools.values()]

    async def run(self) -> None:
        """Look at pools that are due or stirred, for ever."""
        failures = 0
        while True:
            leave_if_cancelled()
            self.alive_at = time.monotonic()
            try:
                await self._wait()
                await self.look()
                failures = 0
            except RedisError as error:
                failures += 1
                if failures == 1:
                    logger.warning("pools hold, for Redis does not answer: %s", error)
                await self._hold(error)
                await asyncio.sleep(backoff(failures))

    async def _hold(self, error: RedisError) -> None:
        """Say of each pool that its jobs cannot be counted, once; look at it when they can be."""
        reason = "RedisUnavailable" if is_transient(error) else "RedisError"
        trouble = Trouble(reason, f"the workload is left as it is: {error}", stalled=False)
        untold = [pool for pool in self._pools.values() if _reason(pool.body) != reason]
        await self._all({pool.ref.uid: trouble for pool in untold})
        for pool in self._pools.values():
            pool.calm_since, pool.due = None, 0.0

    async def look(self) -> None:
        """Look at every pool that is due, and at all others of the same queue with it."""
        now = time.monotonic()
        stirred = {pool.queue for pool in self._pools.values() if pool.due <= now}
        due = [pool for pool in self._pools.values() if pool.queue in stirred]
        if not due:
            return
        found = await self.queues.backlogs([pool.horizon for pool in due])
        seen: dict[str, Backlog | Trouble] = {}
        for pool, answer in zip(due, found, strict=True):
            if isinstance(answer, str):
                pool.event = ""
                seen[pool.ref.uid] = Trouble("RedisError", answer, stalled=False)
            else:
                pool.event = answer.event
                seen[pool.ref.uid] = answer
        await self._all(seen)

    async def _all(self, seen: Mapping[str, Backlog | Trouble]) -> None:
        left = iter(seen.items())

        async def lane() -> None:
            for uid, what in left:
                if pool := self._pools.get(uid):
                    await self._attend(pool, what)

        await asyncio.gather(*(lane() for _ in range(min(AT_ONCE, len(seen)))))

    async def _wait(self) -> None:
        """Wait until a queue stirs, a pool is due, or one is new."""
        if not self._pools:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ALONE_SECONDS):
                    await self._noticed.wait()
        self._noticed.clear()
        soonest = min((pool.due for pool in self._pools.values()), default=0.0)
        wait = soonest - time.monotonic()
        seen = {pool.queue: pool.event for pool in self._pools.values() if pool.event}
        if wait > 0 and seen:
            stirred = await self.queues.stirred(seen, min(wait, BLOCK_SECONDS))
            for pool in self._pools.values():
                if pool.queue in stirred:
                    pool.due = 0.0
        elif wait > 0:
            await asyncio.sleep(min(wait, 1.0))
        await asyncio.sleep(GATHER_SECONDS)

    async def _attend(self, pool: Pool, what: Backlog | Trouble) -> None:
        """Look at one pool; an error holds up no other."""
        self.alive_at = time.monotonic()
        pool.due = self.alive_at + SLOW_SECONDS
        try:
            try:
                if isinstance(what, Backlog) and (rival := self._rival(pool)):
                    await self._scaler.stand_back(pool, rival, what)
                elif isinstance(what, Backlog):
                    await self._scaler.scale(pool, what)
                else:
                    await self._scaler.stand_back(pool, what)
                pool.failures = 0
            except Conflict:
                # The workload or the pool has changed since it was read.
                await self._refresh(pool)
        except (ApiError, RedisError) as error:
            self._retry(pool)
            logger.warning("%s", error, extra=pool.ref.context)
        except Exception:
            self._retry(pool)
            logger.exception("unexpected", extra=pool.ref.context)

    def _retry(self, pool: Pool) -> None:
        pool.failures += 1
        pool.due = time.monotonic() + backoff(pool.failures)

    async def _refresh(self, pool: Pool) -> None:
        pool.workload = None
        body = await self.cluster.read(pool.ref)
        if body is None:
            self.forget(pool.ref)
        else:
            pool.body = body
            pool.due = 0.0

    def _rival(self, pool: Pool) -> Trouble | None:
        """Name an older pool that scales the same workload."""
        for other in self._pools.values():
            if other.target == pool.target and other.age < pool.age:
                pool.workload = None
                said = f"the WorkerPool {other.ref.name} scales the same workload and is older"
                return Trouble("Conflict", said)
        return None


def _reason(body: Body) -> str:
    """Return why a pool does what it does, as its status has it."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((each["reason"] for each in conditions if each["type"] == "Ready"), "")
