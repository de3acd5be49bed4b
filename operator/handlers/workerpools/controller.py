"""WorkerPools: what waits in a queue -> the replicas of a workload, through its scale subresource.

One loop for all pools. It reads every queue that stirred in one call and then blocks on the event
streams of all of them, from the very moment of that reading on: so no job goes unheard, and nobody
polls. What follows from a reading is a task of its own: a workload that is slow to answer holds up
no other. Pools are few and small; they are kept in memory whole.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from handlers.cluster import ApiError, Cluster, Conflict, Ref
from handlers.scaling import Body, Pool, Scaler, unreadable
from jobgroup.conditions import Trouble
from jobgroup.connection import RedisError, backoff, is_transient, leave_if_cancelled
from jobgroup.pool_status import CONFLICT
from jobgroup.queues import Queues
from jobgroup.replicas import Backlog

logger = logging.getLogger(__name__)

# A burst is one look: jobs that come within this time are counted together.
GATHER_SECONDS = 0.25
# A pool is looked at this often even if nothing stirs.
SLOW_SECONDS = 300.0
# Without any pool the loop comes round this often, so that it is seen to be alive.
ALONE_SECONDS = 30.0
# So many pools speak to the API server at the same time.
AT_ONCE = 20


@dataclass(slots=True)
class Pools:
    """All pools, and the loop that scales them."""

    cluster: Cluster
    queues: Queues
    leads: Callable[[], bool]
    alive_at: float = field(default_factory=time.monotonic)
    _pools: dict[str, Pool] = field(default_factory=dict)
    _noticed: asyncio.Event = field(default_factory=asyncio.Event)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _tasks: asyncio.TaskGroup = field(init=False)
    _scaler: Scaler = field(init=False)

    def __post_init__(self) -> None:
        self._scaler = Scaler(self.cluster, self.queues, self.leads)

    def notice(self, ref: Ref, body: Body) -> None:
        """Hear of a pool; that only its status changed is no news."""
        if "deletionTimestamp" in body["metadata"]:
            self.forget(ref)
            return
        known = self._pools.get(ref.uid)
        if known is None:
            self._pools[ref.uid] = pool = Pool(ref, body)
            self._wake_rivals(pool)
        elif known.generation < body["metadata"]["generation"]:
            known.learn(body)
        self._noticed.set()

    def forget(self, ref: Ref) -> None:
        """Hear that a pool is gone; the workload stays as it is, and another may have it now."""
        if gone := self._pools.pop(ref.uid, None):
            self._wake_rivals(gone)
        self._noticed.set()

    def _wake_rivals(self, of: Pool) -> None:
        """Have all pools looked at whose workload is the same: who scales it may change."""
        for pool in self._pools.values():
            if pool.target == of.target:
                pool.due = 0.0

    def statuses(self) -> list[tuple[Ref, Body]]:
        """Return what the status of each pool says."""
        return [(pool.ref, pool.body.get("status") or {}) for pool in self._pools.values()]

    async def run(self) -> None:
        """Look at pools that are due or stirred, for ever."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._go_round()

    async def _go_round(self) -> None:
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
                self._hold(error)
                await asyncio.sleep(backoff(failures))

    def _hold(self, error: RedisError) -> None:
        """Say of each pool that its jobs cannot be counted, once; look at it when they can be."""
        reason = "RedisUnavailable" if is_transient(error) else "RedisError"
        trouble = Trouble(reason, f"the workload is left as it is: {error}", stalled=False)
        for pool in self._pools.values():
            if not pool.busy and _said(pool.body)[0] != reason:
                self._begin(pool, trouble)
            pool.calm_since, pool.due = None, 0.0

    async def look(self) -> None:
        """Look at every pool that is due, and at all others of the same queue with it."""
        pools, now = self._pools.values(), time.monotonic()
        stirred = {pool.queue for pool in pools if pool.due <= now and not pool.busy}
        together = [pool for pool in pools if pool.queue in stirred]
        for pool in together:
            pool.due = 0.0  # so it stays with those that are busy, until they are not
        due = [pool for pool in together if not pool.busy]
        if not due:
            return
        found = await self.queues.backlogs([pool.horizon for pool in due])
        for pool, answer in zip(due, found, strict=True):
            if isinstance(answer, str):
                pool.event = ""
                self._begin(pool, unreadable(answer))
                continue
            if answer.event != pool.event:
                # Jobs may have come and gone: a queue that stirs is not quiet.
                pool.calm_since = None
            pool.event = answer.event
            self._begin(pool, answer)

    async def _wait(self) -> None:
        """Wait until a queue stirs, a pool is due, or one is new."""
        if not self._pools:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ALONE_SECONDS):
                    await self._noticed.wait()
        self._noticed.clear()
        pools, now = self._pools.values(), time.monotonic()
        wait = min((pool.due for pool in pools), default=0.0) - now
        # Of one that is busy and due already there is nothing more to hear.
        heard = (pool for pool in pools if pool.event and not (pool.busy and pool.due <= now))
        if seen := {pool.queue: pool.event for pool in heard}:
            stirred = await self.queues.stirred(seen, max(0.0, wait))
            for pool in pools:
                if pool.queue in stirred:
                    pool.due = 0.0
        elif wait > 0:
            await asyncio.sleep(min(wait, 1.0))
        await asyncio.sleep(GATHER_SECONDS)

    def _begin(self, pool: Pool, what: Backlog | Trouble) -> None:
        """Let a pool be seen to, and do not wait for it."""
        pool.busy, pool.due = True, time.monotonic() + SLOW_SECONDS
        self._tasks.create_task(self._attend(pool, what))

    async def _attend(self, pool: Pool, what: Backlog | Trouble) -> None:
        """See to one pool; an error holds up no other."""
        try:
            async with self._slots:
                if pool.ref.uid in self._pools:
                    await self._act(pool, what)
            pool.failures = 0
        except (ApiError, RedisError) as error:
            self._retry(pool)
            logger.warning("%s", error, extra=pool.ref.context)
        except Exception:
            self._retry(pool)
            logger.exception("unexpected", extra=pool.ref.context)
        finally:
            pool.busy = pool.is_new = False

    async def _act(self, pool: Pool, what: Backlog | Trouble) -> None:
        try:
            if pool.checked_at + SLOW_SECONDS <= time.monotonic() and not await self._check(pool):
                return
            if isinstance(what, Backlog) and (rival := await self._rival(pool)):
                await self._scaler.stand_back(pool, rival, what)
            elif isinstance(what, Backlog):
                await self._scaler.scale(pool, what)
            else:
                await self._scaler.stand_back(pool, what)
        except Conflict:
            # The workload or the pool has changed since it was read.
            pool.workload, pool.due = None, 0.0
            await self._check(pool)
        except ApiError as error:
            if error.code != 404 or await self._check(pool):
                raise

    def _retry(self, pool: Pool) -> None:
        pool.failures += 1
        pool.due = time.monotonic() + backoff(pool.failures)

    async def _check(self, pool: Pool) -> bool:
        """Read a pool anew and say whether it is there: a watch that had to begin anew, and was
        told nothing of what went before, leaves us with pools that are gone.
        """
        body = await self.cluster.read(pool.ref)
        pool.checked_at = time.monotonic()
        if body is None:
            self.forget(pool.ref)
            return False
        pool.learn(body)
        return True

    async def _rival(self, pool: Pool) -> Trouble | None:
        """Name an older pool that scales the same workload."""
        for other in list(self._pools.values()):
            older = other.target == pool.target and other.age < pool.age
            if older and await self._check(other):
                pool.workload = None
                said = f"the WorkerPool {other.ref.name} scales the same workload and is older"
                return Trouble(CONFLICT, said)
        if pool.is_new and _said(pool.body)[0] == CONFLICT:
            # After a restart, the older one may not have been heard of yet.
            return Trouble(*_said(pool.body))
        return None


def _said(body: Body) -> tuple[str, str]:
    """Return why a pool does what it does, as its status has it: reason and message."""
    for each in (body.get("status") or {}).get("conditions") or ():
        if each["type"] == "Ready":
            return each["reason"], each["message"]
    return "", ""
