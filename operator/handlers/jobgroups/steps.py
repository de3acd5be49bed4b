"""The steps of a reconcile: one method each, all idempotent.

The process may crash after any step. The next reconcile then finds in the object and in Redis what
is left to do.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from handlers.failpoints import failpoint
from handlers.jobgroups.cache import Body, ObjectCache
from handlers.jobgroups.left import LeftObjects
from handlers.jobgroups.planning import plan_object
from handlers.jobgroups.reporter import Reporter, requeue_after
from handlers.kube.client import ApiClient
from handlers.kube.leader import NotLeaderError
from handlers.kube.refs import Ref
from handlers.kube.releases import Verdict
from handlers.kube.workqueue import soonest
from jobgroup.definition.answers import Answer
from jobgroup.definition.plan import Plan
from jobgroup.errors import (
    InvalidGroupStateError,
    InvalidJobStateError,
    InvalidSpecError,
    RedisStateLostError,
    RefusedError,
)
from jobgroup.model.snapshot import GroupJob, GroupState
from jobgroup.resource import reasons
from jobgroup.resource.conditions import Problem
from jobgroup.resource.decisions import (
    FINALIZER,
    GROUP_ANNOTATION,
    PROBLEMS,
    RELEASE_ANNOTATION,
    Claimant,
    Resource,
    Step,
    finalizers_without_ours,
    outlives_its_namespace,
)
from jobgroup.resource.events import event_of_other_release
from jobgroup.resource.resolutions import Resolution
from jobgroup.store.store import Store

logger = logging.getLogger(__name__)

# How often to check whether the namespace of a deleted object terminates: no event reports it.
HOLD_SECONDS = 5
# When to try again what Redis refused.
REFUSED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Observation:
    """An object and its group, as just read; the group of another release is not read."""

    ref: Ref
    body: Body
    resource: Resource
    group: GroupState | None
    incarnation: str
    # None if they were not read with the group.
    jobs: Sequence[GroupJob] | None
    claimant: Claimant
    # What is known about the release that claimed the object.
    verdict: Verdict
    # The answers of the spec to jobs that are pending, by job id.
    answers: Mapping[str, Answer] = field(default_factory=dict)
    # The resolutions of the spec of undos that failed or wait, by job id.
    resolutions: Mapping[str, Resolution] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """The object if another step follows, and when to reconcile it again if none does."""

    body: Body | None = None
    requeue_after: float | None = None


class Steps:
    """Carries out steps; `is_leader` returns whether this replica may still write to Redis."""

    def __init__(
        self,
        api: ApiClient,
        store: Store,
        cache: ObjectCache,
        reporter: Reporter,
        left: LeftObjects,
        owner: str,
        release: str,
        is_leader: Callable[[], bool],
    ) -> None:
        self._api = api
        self._store = store
        self._cache = cache
        self._reporter = reporter
        self._left = left
        self._owner = owner
        self._release_name = release
        self._is_leader = is_leader
        self._steps: dict[Step, Callable[[Observation], Awaitable[Result]]] = {
            Step.NOTHING: self._nothing,
            Step.LEAVE: self._leave,
            Step.CLAIM: self._claim,
            Step.CREATE: self._create,
            Step.CANCEL: self._cancel,
            Step.EXPIRE: self._expire,
            Step.ANSWER: self._answer,
            Step.RESOLVE: self._resolve,
            Step.RETRY: self._retry,
            Step.REPORT: self._report,
            **{step: partial(self._block, step) for step in PROBLEMS},
            Step.BLOCK_CANCELLED: self._block_cancelled,
            Step.DELETE: self._delete,
            Step.AWAIT_COMPENSATION: self._await_compensation,
            Step.REMOVE: self._remove,
            Step.ORPHAN: self._orphan,
            Step.TOMBSTONE: self._tombstone,
        }

    async def take(self, step: Step, observed: Observation) -> Result:
        """Carry out one step."""
        return await self._steps[step](observed)

    async def refuse(self, ref: Ref, body: Body, refusal: RefusedError) -> Result:
        """Report that Redis refused the group."""
        return await self._problem(ref, body, Problem(reasons.for_refusal(refusal), str(refusal)))

    async def _problem(self, ref: Ref, body: Body, problem: Problem, state: str = "") -> Result:
        return Result(
            requeue_after=await self._reporter.report(ref, body, problem=problem, state=state)
        )

    def _require_leader(self) -> None:
        """Raise NotLeaderError if the leader lease was lost; call it before each write to Redis.

        No resourceVersion protects such a write, and a process that was suspended resumes with an
        object that it read before.
        """
        if not self._is_leader():
            raise NotLeaderError(
                "lost the leader lease; discarding a decision made from a stale read"
            )

    async def _nothing(self, observed: Observation) -> Result:
        self._cache.remove(observed.ref.uid)
        return Result(requeue_after=requeue_after(observed.resource, observed.group))

    async def _leave(self, observed: Observation) -> Result:
        """Leave an object to the release that claimed it; post one Event that names the release."""
        ref, resource = observed.ref, observed.resource
        # Before the Event: meanwhile, a watch event may show that the claim or a label has changed.
        is_left = self._left.add(ref, observed.body, observed.verdict)
        if not is_left or resource.ended or observed.verdict.is_unconfirmed:
            return Result()
        is_known = observed.claimant is Claimant.ALIVE
        event = event_of_other_release(resource.claimed_by, self._release_name, is_known)
        try:
            await self._reporter.post(ref, observed.body, [event])
        except Exception:
            self._left.take_back(ref)
            raise
        return Result()

    async def _report(self, observed: Observation) -> Result:
        return Result(
            requeue_after=await self._reporter.report(
                observed.ref, observed.body, observed.group, observed.jobs
            )
        )

    async def _block(self, step: Step, observed: Observation) -> Result:
        """Report why there is no group, for now or for good."""
        state = observed.resource.state
        return await self._problem(observed.ref, observed.body, PROBLEMS[step], state)

    async def _block_cancelled(self, observed: Observation) -> Result:
        """End an object that was cancelled before its group was created; prevent its creation."""
        failpoint("tombstone_cancelled")
        self._require_leader()
        if await self._store.tombstone(observed.ref.uid):
            return Result(observed.body)  # another replica created the group meanwhile
        problem = PROBLEMS[Step.BLOCK_CANCELLED]
        return await self._problem(observed.ref, observed.body, problem, state="FAILED")

    async def _claim(self, observed: Observation) -> Result:
        """Write the finalizer and the group's annotation, before the group is created."""
        try:
            plan = None if observed.group else await self._plan(observed)
        except InvalidSpecError as refusal:
            problem = Problem(reasons.INVALID_SPEC, str(refusal))
            state = "FAILED" if refusal.is_final else ""
            return await self._problem(observed.ref, observed.body, problem, state)
        annotations = observed.body["metadata"].get("annotations") or {}
        group = f"{observed.ref.uid}/{observed.incarnation}"
        claim = {
            "finalizers": [*finalizers_without_ours(observed.body), FINALIZER],
            "annotations": {
                **annotations,
                GROUP_ANNOTATION: group,
                RELEASE_ANNOTATION: self._release_name,
            },
        }
        failpoint("claim")
        body = await self._reporter.write(self._api.put_metadata(observed.body, claim))
        if plan is None:
            return Result(body)
        # The write would have failed if anything else had changed: no need to read again.
        return await self._create_from(replace(observed, body=body), plan)

    async def _plan(self, observed: Observation) -> Plan:
        return await plan_object(observed.ref, observed.body, self._owner)

    async def _create(self, observed: Observation) -> Result:
        return await self._create_from(observed, await self._plan(observed))

    async def _create_from(self, observed: Observation, plan: Plan) -> Result:
        failpoint("create")
        self._require_leader()
        made = await self._store.create_and_read(plan)
        if isinstance(made, RefusedError):
            return await self.refuse(observed.ref, observed.body, made)
        if made.group is None:
            return Result(observed.body)  # the group has been removed again
        return await self._report(replace(observed, group=made.group, jobs=made.jobs))

    async def _cancel(self, observed: Observation) -> Result:
        failpoint("cancel")
        self._require_leader()
        try:
            await self._store.cancel(observed.ref.uid, by=observed.ref.full_name)
        except InvalidGroupStateError:
            logger.info("the group ended before it was cancelled", extra=observed.ref.context)
        return Result(observed.body)

    async def _expire(self, observed: Observation) -> Result:
        failpoint("expire")
        self._require_leader()
        (result,) = await self._store.settle([observed.ref.uid], reasons.DEADLINE_EXCEEDED)
        if isinstance(result, Exception):
            raise result
        return Result(observed.body)

    async def _answer(self, observed: Observation) -> Result:
        """Finish pending jobs as the spec says. One that a worker has taken meanwhile is left."""
        for job_id, answer in observed.answers.items():
            failpoint("answer")
            self._require_leader()
            try:
                await self._store.answer(observed.ref.uid, job_id, answer)
            except (InvalidGroupStateError, InvalidJobStateError) as refusal:
                context = observed.ref.context
                logger.info("the answer to %s waits: it %s", job_id, refusal, extra=context)
        group, jobs, _ = await self._store.read_with(observed.ref.uid, jobs=True)
        if group is None:
            return Result(observed.body)
        return await self._report(replace(observed, group=group, jobs=jobs))

    async def _resolve(self, observed: Observation) -> Result:
        """Resolve undos that failed or wait. One that runs is left until it has ended."""
        is_refused = False
        for job_id, given in observed.resolutions.items():
            failpoint("resolve")
            self._require_leader()
            by = given.by or observed.ref.full_name
            try:
                await self._store.resolve_undo(observed.ref.uid, job_id, given.reason, by)
            except (InvalidGroupStateError, InvalidJobStateError) as refusal:
                is_refused = True
                logger.info("an undo is not resolved: %s", refusal, extra=observed.ref.context)
        return await self._report_refused(observed) if is_refused else Result(observed.body)

    async def _retry(self, observed: Observation) -> Result:
        """Retry failed undos, unless that has been done as often as the spec says."""
        failpoint("retry")
        self._require_leader()
        ref = observed.ref
        below = observed.resource.retry_undos
        try:
            await self._store.retry_undos(ref.uid, by=ref.full_name, below=below)
        except (InvalidGroupStateError, InvalidJobStateError) as refusal:
            logger.info("no undo is retried: %s", refusal, extra=ref.context)
            return await self._report_refused(observed)
        self._cache.track(ref)
        return Result(observed.body)

    async def _report_refused(self, observed: Observation) -> Result:
        """Report the group as it is now, and try again later what was refused."""
        group, jobs, _ = await self._store.read_with(observed.ref.uid, jobs=True)
        if group is None:
            return Result(observed.body)
        now = replace(observed, group=group, jobs=jobs)
        if observed.resource.deleting:
            return await self._await_compensation(now)
        await self._report(now)
        return Result(requeue_after=REFUSED_SECONDS)

    async def _delete(self, observed: Observation) -> Result:
        failpoint("delete")
        await self._api.delete(observed.body)
        return Result()

    async def _await_compensation(self, observed: Observation) -> Result:
        """Keep a deleted object until its group is undone; release it with its namespace."""
        if await self._api.is_terminating(observed.ref.namespace):
            return await self._orphan(observed, release=True)
        reported = await self._report(observed)
        return Result(requeue_after=soonest(reported.requeue_after, HOLD_SECONDS))

    async def _remove(self, observed: Observation) -> Result:
        if observed.group:
            await self._reporter.post_end(observed.ref, observed.body, observed.group)
        if outlives_its_namespace(observed.group) and await self._api.is_terminating(
            observed.ref.namespace
        ):
            return await self._orphan(observed, release=True)
        failpoint("remove")
        self._require_leader()
        await self._store.remove(observed.ref.uid)
        return await self._release(observed)

    async def _orphan(self, observed: Observation, release: bool = False) -> Result:
        failpoint("orphan")
        self._require_leader()
        await self._store.orphan(observed.ref.uid, release)
        result = await self._release(observed)
        if release:
            logger.info(
                "released the group %s, because its namespace is deleted: it is removed from Redis"
                " after its end, unless an undo fails for good",
                observed.ref.uid,
                extra=observed.ref.context,
            )
        return result

    async def _tombstone(self, observed: Observation) -> Result:
        """Release an object that has no group, and prevent the creation of its group."""
        failpoint("tombstone")
        self._require_leader()
        # A group of which BullMQ removed a part with its queue cannot be created again either.
        with suppress(RedisStateLostError):
            if await self._store.tombstone(observed.ref.uid):
                return Result(observed.body)  # another replica created the group meanwhile
        return await self._release(observed)

    async def _release(self, observed: Observation) -> Result:
        """Remove our finalizer."""
        failpoint("release")
        finalizers = {"finalizers": finalizers_without_ours(observed.body)}
        await self._api.put_metadata(observed.body, finalizers)
        self._cache.remove(observed.ref.uid)
        return Result()
