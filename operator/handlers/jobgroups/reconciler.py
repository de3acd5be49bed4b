"""One object: gather, decide, take a step, look again. It never matters what woke it.

Whatever is done here can be cut off after any call and begun again by another replica: each step
is idempotent, and the object and Redis together say where to go on.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from handlers.cluster import ApiError, Cluster, Conflict, Ref
from handlers.memory import Body
from handlers.report import PACE_SECONDS
from handlers.steps import Deposed, Look, Steps
from handlers.workqueue import WorkQueue
from jobgroup.conditions import Trouble
from jobgroup.connection import RedisError, is_transient, leave_if_cancelled
from jobgroup.decisions import Resource, Step, next_step
from jobgroup.errors import RedisStateLostError, SpoiltKeyError
from jobgroup.store import Store, now_ms

logger = logging.getLogger(__name__)

# More steps in a row than any life has.
STEPS = 8
# So few are read along with their group; where they are more, only when there is something to tell.
FEW_JOBS = 20
# What these do cannot be undone, nor does a version guard it: not on the word of a memory.
NEEDS_FRESH = {
    Step.CREATE,
    Step.CANCEL,
    Step.CANCELLED,
    Step.EXPIRE,
    Step.REMOVE,
    Step.DISOWN,
    Step.RENOUNCE,
}


class Reconciler:
    """Brings objects and groups together, one object a call; `leads` says whether it still may."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        owner: str,
        queue: WorkQueue[Ref],
        leads: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._queue = queue
        self._steps = Steps(cluster, store, owner, queue, leads)
        self._reporter = self._steps.reporter
        self.memory = self._steps.memory

    def notice(self, ref: Ref, body: Mapping[str, Any]) -> None:
        """Hear of an object; put it into the queue if there may be something to do."""
        if self.memory.is_known(body):
            return
        resource = Resource.read(body)
        if resource.deleting:
            wanted = resource.claimed
            if wanted:
                self.memory.running[ref.uid] = ref
        elif resource.ended:
            wanted = (
                not resource.is_ours
                or resource.observed != resource.generation
                or resource.ttl_seconds is not None
            )
        else:
            wanted = True
            self.memory.running[ref.uid] = ref
        if wanted:
            self.memory.saw(body)
            self._queue.add(ref)

    def forget(self, ref: Ref) -> None:
        """Hear that an object is gone."""
        self._steps.forget(ref)

    async def work(self) -> None:
        """Reconcile what the queue holds, for ever."""
        while True:
            leave_if_cancelled()
            ref = await self._queue.take()
            try:
                await self.reconcile(ref)
            except ApiError as error:
                wait = self._queue.retry(ref, error.retry_after)
                logger.warning("%s; again in %.1f s", error, wait, extra=ref.context)
            except (RedisError, Deposed) as error:
                wait = self._queue.retry(ref)
                logger.warning("%s; again in %.1f s", error, wait, extra=ref.context)
            except Exception:
                wait = self._queue.retry(ref)
                logger.exception("unexpected; again in %.1f s", wait, extra=ref.context)
            else:
                self._queue.done(ref)

    async def reconcile(self, ref: Ref) -> None:
        """Take step after step until the object and its group agree."""
        try:
            remembered = self.memory.recall(ref.uid)
            if not remembered and await self._can_wait(ref):
                return
            body = remembered or await self._read(ref)
            for _ in range(STEPS):
                if body is None:
                    return
                body = await self._step(ref, body, is_fresh=body is not remembered)
            self._queue.add(ref, PACE_SECONDS)
        except Exception:
            self.memory.doubt(ref.uid)
            raise

    async def _can_wait(self, ref: Ref) -> bool:
        """Say whether only counts can have changed since an object was written, and put it off.

        To read a large object each time a job of it completes would be for nothing.
        """
        written = self.memory.untouched(ref.uid)
        if not written or not self._reporter.is_too_soon(ref):
            return False
        group = await self._store.read(ref.uid)
        return group is not None and group.state == written.state

    async def _read(self, ref: Ref) -> Body | None:
        body = await self._cluster.read(ref)
        if body is None:
            self.forget(ref)
        elif ref.uid in self.memory.running:
            self.memory.saw(body)
        return body

    async def _step(self, ref: Ref, body: Body, is_fresh: bool) -> Body | None:
        """Look and take a step; return the object if it is to be looked at again."""
        try:
            look = await self._look(ref, body)
            step = next_step(look.resource, look.group, look.epoch, now_ms())
            if step in NEEDS_FRESH and not is_fresh:
                return await self._read(ref)
            return await self._steps.take(step, look)
        except ApiError as error:
            if isinstance(error, Conflict) or error.code == 404:
                return await self._read(ref)
            raise
        except RedisError as error:
            reason = "RedisUnavailable" if is_transient(error) else "RedisError"
            trouble = Trouble(reason, str(error), stalled=False)
            await self._reporter.report(ref, body, trouble=trouble)
            raise
        except (RedisStateLostError, SpoiltKeyError) as refusal:
            await self._steps.refuse(ref, body, refusal)
            return None

    async def _look(self, ref: Ref, body: Body) -> Look:
        resource = Resource.read(body)
        few = len((body.get("spec") or {}).get("jobs") or ()) <= FEW_JOBS
        group, jobs, epoch = await self._store.look(ref.uid, jobs=few, epoch=not resource.is_ours)
        if group is None and not epoch:
            epoch = await self._store.epoch()
        return Look(ref, body, resource, group, epoch, jobs)
