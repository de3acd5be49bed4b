"""One object: gather, decide, take a step, look again. It never matters what woke it.

Whatever is done here can be cut off after any call and begun again by another replica: each step
is idempotent, and the object and Redis together say where to go on.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from handlers.cluster import ApiError, Cluster, Conflict, Ref
from handlers.failpoints import failpoint
from handlers.memory import Body, Memory
from handlers.report import PACE_SECONDS, Reporter
from handlers.workqueue import WorkQueue
from jobgroup.conditions import Trouble
from jobgroup.connection import RedisError, is_transient, leave_if_cancelled
from jobgroup.decisions import FINALIZER, NOTE, TROUBLES, Resource, Step, next_step, released
from jobgroup.errors import (
    InvalidGroupStateError,
    InvalidSpecError,
    RedisStateLostError,
    RefusedError,
    SpoiltKeyError,
)
from jobgroup.plan import Plan, plan_group
from jobgroup.resource import parse_definition
from jobgroup.snapshot import GroupState
from jobgroup.store import Store, now_ms

logger = logging.getLogger(__name__)

# More steps in a row than any life has.
STEPS = 8
# What these do cannot be undone, nor does a version guard it: not on the word of a memory.
NEEDS_FRESH = {
    Step.CREATE,
    Step.CANCEL,
    Step.CANCELLED,
    Step.EXPIRE,
    Step.REMOVE,
    Step.DISOWN,
}
# How often to look whether the namespace of an object that is held goes, too: nobody tells.
HOLD_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Look:
    """An object and its group, as found just now."""

    ref: Ref
    body: Body
    resource: Resource
    group: GroupState | None
    epoch: str


class Deposed(Exception):
    """Another replica may lead by now, so what this one knows of an object may be long past."""


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
        self._owner = owner
        self._queue = queue
        self._leads = leads
        self.memory = Memory()
        self._reporter = Reporter(cluster, store, queue, self.memory)
        # Each returns the object if it is to be looked at again.
        self._steps: dict[Step, Callable[[Look], Awaitable[Body | None]]] = {
            Step.NOTHING: self._nothing,
            Step.CLAIM: self._claim,
            Step.CREATE: self._create,
            Step.CANCEL: self._cancel,
            Step.EXPIRE: self._expire,
            Step.REPORT: self._report,
            **{step: partial(self._explain, step) for step in TROUBLES},
            Step.CANCELLED: self._give_up,
            Step.DELETE: self._delete,
            Step.LEAVE: self._leave,
            Step.REMOVE: self._remove,
            Step.DISOWN: self._disown,
        }

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
        self.memory.forget(ref.uid)
        self._queue.forget(ref)

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
            return await self._steps[step](look)
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
            await self._refuse(ref, body, refusal)
            return None

    async def _refuse(self, ref: Ref, body: Body, refusal: RefusedError) -> None:
        """Say why Redis forbids it."""
        reason = type(refusal).__name__.removesuffix("Error")
        await self._reporter.report(ref, body, trouble=Trouble(reason, str(refusal)))

    def _must_lead(self) -> None:
        """Go no further with a write to Redis, which no version guards, after the lease was lost.

        A process that was stopped wakes up where it stood, with an object that it read before.
        """
        if not self._leads():
            raise Deposed("the lease is lost, so nothing is done on the word of an old look")

    async def _look(self, ref: Ref, body: Body) -> Look:
        resource, group = Resource.read(body), await self._store.read(ref.uid)
        epoch = "" if group and resource.is_ours else await self._store.epoch()
        return Look(ref, body, resource, group, epoch)

    async def _nothing(self, look: Look) -> None:
        self._reporter.come_back(look.ref, look.body, look.group)
        self.memory.forget(look.ref.uid)

    async def _report(self, look: Look) -> None:
        await self._reporter.report(look.ref, look.body, look.group)

    async def _explain(self, step: Step, look: Look) -> None:
        """Say why there is no group and will not be one, or not yet."""
        await self._reporter.report(look.ref, look.body, trouble=TROUBLES[step])

    async def _give_up(self, look: Look) -> Body | None:
        """End what was cancelled before it was created; nobody may create it any more."""
        failpoint("forbid")
        if await self._store.forbid(look.ref.uid):
            return look.body  # somebody else was still at it
        trouble = TROUBLES[Step.CANCELLED]
        await self._reporter.report(look.ref, look.body, trouble=trouble, state="FAILED")
        return None

    async def _claim(self, look: Look) -> Body | None:
        """Note on the object which group it is going to have, before the group is made."""
        try:
            if not look.group:
                self._plan(look)
        except InvalidSpecError as refusal:
            trouble = Trouble("InvalidSpec", str(refusal))
            await self._reporter.report(look.ref, look.body, trouble=trouble)
            return None
        note = f"{look.ref.uid}/{look.epoch}"
        failpoint("claim")
        body = await self._reporter.write(
            self._cluster.patch_metadata(
                look.body,
                {"finalizers": [*released(look.body), FINALIZER], "annotations": {NOTE: note}},
            ),
        )
        if look.group:
            return body
        # Nothing else has changed, or the write had been refused: no need to look again.
        return await self._create(replace(look, body=body))

    def _plan(self, look: Look) -> Plan:
        """Spell out the group that an object asks for, or raise what is wrong with it."""
        definition = parse_definition(look.body)
        resource = f"{look.ref.namespace}/{look.ref.name}"
        return plan_group(definition, look.ref.uid, self._owner, resource)

    async def _create(self, look: Look) -> Body | None:
        plan = self._plan(look)
        failpoint("create")
        self._must_lead()
        (answer,) = await self._store.create([plan])
        if isinstance(answer, RefusedError):
            await self._refuse(look.ref, look.body, answer)
            return None
        return look.body

    async def _cancel(self, look: Look) -> Body | None:
        failpoint("cancel")
        self._must_lead()
        try:
            await self._store.cancel(look.ref.uid)
        except InvalidGroupStateError:
            logger.info("it ended before it could be cancelled", extra=look.ref.context)
        return look.body

    async def _expire(self, look: Look) -> Body | None:
        failpoint("expire")
        self._must_lead()
        (answer,) = await self._store.settle([(look.ref.uid, "")], "DeadlineExceeded")
        if isinstance(answer, Exception):
            raise answer
        return look.body

    async def _delete(self, look: Look) -> None:
        failpoint("delete")
        await self._cluster.delete(look.body)

    async def _leave(self, look: Look) -> None:
        """Hold an object that goes until its group is undone, but not a namespace that goes."""
        if await self._cluster.is_terminating(look.ref.namespace):
            await self._disown(look)
        else:
            await self._report(look)
            self._queue.add(look.ref, HOLD_SECONDS)

    async def _remove(self, look: Look) -> None:
        if look.group:
            await self._reporter.tell_of_end(look.ref, look.body, look.group)
        failpoint("remove")
        self._must_lead()
        await self._store.remove(look.ref.uid)
        await self._release(look)

    async def _disown(self, look: Look) -> None:
        failpoint("disown")
        self._must_lead()
        await self._store.disown(look.ref.uid)
        await self._release(look)

    async def _release(self, look: Look) -> None:
        failpoint("release")
        await self._cluster.patch_metadata(look.body, {"finalizers": released(look.body)})
        self.forget(look.ref)
