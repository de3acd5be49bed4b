"""What a reconcile may do about one object: one method a step, each idempotent.

A step may be the last thing before a crash. Whoever looks next finds in the object and in Redis
where to go on.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from handlers.cluster import Cluster, Ref
from handlers.failpoints import failpoint
from handlers.memory import Body, Memory
from handlers.report import Reporter
from handlers.workqueue import WorkQueue
from jobgroup.conditions import Trouble
from jobgroup.decisions import FINALIZER, NOTE, TROUBLES, Resource, Step, released
from jobgroup.errors import (
    InvalidGroupStateError,
    InvalidSpecError,
    RedisStateLostError,
    RefusedError,
)
from jobgroup.plan import Plan, plan_group
from jobgroup.resource import parse_definition
from jobgroup.snapshot import GroupJob, GroupState
from jobgroup.store import Store

logger = logging.getLogger(__name__)

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
    # Read along with the group, or not yet.
    jobs: Sequence[GroupJob] | None


class Deposed(Exception):
    """Another replica may lead by now, so what this one knows of an object may be long past."""


class Steps:
    """Takes steps; `leads` says whether this replica still may."""

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
        self.reporter = Reporter(cluster, store, queue, self.memory)
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
            Step.RENOUNCE: self._renounce,
        }

    async def take(self, step: Step, look: Look) -> Body | None:
        """Take a step; return the object if it is to be looked at again."""
        return await self._steps[step](look)

    def forget(self, ref: Ref) -> None:
        """Remember nothing of an object that is gone."""
        self.memory.forget(ref.uid)
        self._queue.forget(ref)

    async def refuse(self, ref: Ref, body: Body, refusal: RefusedError) -> None:
        """Say why Redis forbids it."""
        reason = type(refusal).__name__.removesuffix("Error")
        await self.reporter.report(ref, body, trouble=Trouble(reason, str(refusal)))

    def _must_lead(self) -> None:
        """Go no further with a write to Redis, which no version guards, after the lease was lost.

        A process that was stopped wakes up where it stood, with an object that it read before.
        """
        if not self._leads():
            raise Deposed("the lease is lost, so nothing is done on the word of an old look")

    async def _nothing(self, look: Look) -> None:
        self.reporter.come_back(look.ref, look.body, look.group)
        self.memory.forget(look.ref.uid)

    async def _report(self, look: Look) -> None:
        await self.reporter.report(look.ref, look.body, look.group, look.jobs)

    async def _explain(self, step: Step, look: Look) -> None:
        """Say why there is no group and will not be one, or not yet."""
        await self.reporter.report(look.ref, look.body, trouble=TROUBLES[step])

    async def _give_up(self, look: Look) -> Body | None:
        """End what was cancelled before it was created; nobody may create it any more."""
        failpoint("forbid")
        self._must_lead()
        if await self._store.forbid(look.ref.uid):
            return look.body  # somebody else was still at it
        trouble = TROUBLES[Step.CANCELLED]
        await self.reporter.report(look.ref, look.body, trouble=trouble, state="FAILED")
        return None

    async def _claim(self, look: Look) -> Body | None:
        """Note on the object which group it is going to have, before the group is made."""
        try:
            plan = None if look.group else self._plan(look)
        except InvalidSpecError as refusal:
            trouble = Trouble("InvalidSpec", str(refusal))
            await self.reporter.report(look.ref, look.body, trouble=trouble)
            return None
        kept = look.body["metadata"].get("annotations") or {}
        claim = {
            "finalizers": [*released(look.body), FINALIZER],
            "annotations": {**kept, NOTE: f"{look.ref.uid}/{look.epoch}"},
        }
        failpoint("claim")
        body = await self.reporter.write(self._cluster.put_metadata(look.body, claim))
        if plan is None:
            return body
        # Nothing else has changed, or the write had been refused: no need to look again.
        return await self._make(replace(look, body=body), plan)

    def _plan(self, look: Look) -> Plan:
        """Spell out the group that an object asks for, or raise what is wrong with it."""
        definition = parse_definition(look.body)
        resource = f"{look.ref.namespace}/{look.ref.name}"
        return plan_group(definition, look.ref.uid, self._owner, resource)

    async def _create(self, look: Look) -> Body | None:
        return await self._make(look, self._plan(look))

    async def _make(self, look: Look, plan: Plan) -> Body | None:
        failpoint("create")
        self._must_lead()
        made = await self._store.make(plan)
        if isinstance(made, RefusedError):
            await self.refuse(look.ref, look.body, made)
        elif made.group is None:
            return look.body  # it is gone again
        else:
            await self.reporter.report(look.ref, look.body, made.group, made.jobs)
        return None

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
            await self.reporter.tell_of_end(look.ref, look.body, look.group)
        failpoint("remove")
        self._must_lead()
        await self._store.remove(look.ref.uid)
        await self._release(look)

    async def _disown(self, look: Look) -> None:
        failpoint("disown")
        self._must_lead()
        await self._store.disown(look.ref.uid)
        await self._release(look)

    async def _renounce(self, look: Look) -> Body | None:
        """Let go of an object that has no group; nobody may make it one any more."""
        failpoint("renounce")
        self._must_lead()
        # What BullMQ took with its queue cannot be made again either.
        with suppress(RedisStateLostError):
            if await self._store.forbid(look.ref.uid):
                return look.body  # somebody else was still at it
        await self._release(look)
        return None

    async def _release(self, look: Look) -> None:
        failpoint("release")
        await self._cluster.put_metadata(look.body, {"finalizers": released(look.body)})
        self.forget(look.ref)
