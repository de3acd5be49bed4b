"""The controller of JobGroups: read an object and its group, decide, carry out a step, repeat.

A reconcile can be interrupted after any call and continued by another replica: each step is
idempotent, and the object and Redis together define what is left to do. A reconcile does not depend
on what triggered it.

Each write of a large object occupies the API server for as long as a hundred writes of small ones.
So after a large object its worker rests: the writes of small objects find an idle API server.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from handlers.jobgroups.cache import Body, ObjectCache
from handlers.jobgroups.left import LeftObjects
from handlers.jobgroups.queue_watch import QueueWatch
from handlers.jobgroups.reporter import PACE_SECONDS, Reporter
from handlers.jobgroups.steps import Observation, Result, Steps
from handlers.kube.client import ApiClient, ApiError, Conflict
from handlers.kube.refs import Ref
from handlers.kube.releases import Releases
from handlers.kube.worker import process
from handlers.kube.workqueue import WorkQueue
from jobgroup.errors import CorruptKeyError, NewerFormatError, RedisStateLostError
from jobgroup.model.clock import now_ms
from jobgroup.resource.answers import due_answers, standing_answers
from jobgroup.resource.conditions import redis_problem
from jobgroup.resource.decisions import OTHERS, Claimant, Resource, Step, next_step
from jobgroup.resource.resolutions import due_resolutions, standing_resolutions
from jobgroup.store.connection import RedisError, is_transient, leave_if_cancelled
from jobgroup.store.store import Store

# More steps in a row than any object needs.
MAX_STEPS = 8
# The jobs of groups up to this size are read with the group, those of others only when needed.
FEW_JOBS = 20
# After a large object, a worker rests this many times as long as the reconcile took, up to a limit.
RESTS = 2
MAX_REST_SECONDS = 2.0
# Steps that cannot be undone and that no resourceVersion protects. They need an object that was
# just read, not a cached one.
NEEDS_FRESH = {
    Step.CREATE,
    Step.CANCEL,
    Step.BLOCK_CANCELLED,
    Step.EXPIRE,
    Step.ANSWER,
    Step.RESOLVE,
    Step.RETRY,
    Step.REMOVE,
    Step.ORPHAN,
    Step.TOMBSTONE,
}


class Reconciler:
    """Takes JobGroups from the work queue and reconciles each with its group in Redis."""

    def __init__(
        self,
        api: ApiClient,
        store: Store,
        cache: ObjectCache,
        reporter: Reporter,
        steps: Steps,
        queue: WorkQueue[Ref],
        watch: QueueWatch,
        releases: Releases,
        left: LeftObjects,
        default_ttl: int | None = None,
    ) -> None:
        self._api = api
        self._store = store
        self._cache = cache
        self._reporter = reporter
        self._steps = steps
        self._queue = queue
        self._watch = watch
        self._releases = releases
        self._left = left
        self._default_ttl = default_ttl

    def enqueue(self, ref: Ref, body: Mapping[str, Any]) -> None:
        """Add an object of a watch event to the work queue, if there may be something to do."""
        if self._cache.is_own_write(body) or self._left.observe(ref.uid, body):
            return
        resource = Resource.read(body, self._default_ttl)
        if resource.deleting:
            is_wanted = is_running = resource.claimed
        elif resource.ended:
            is_running = False
            is_wanted = (
                not resource.is_ours
                or resource.observed != resource.generation
                or resource.ttl_seconds is not None
                or resource.may_compensate_again
            )
        else:
            is_wanted = is_running = True
        if is_running:
            self._cache.track(ref)
            self._watch.track(ref, body)
        if is_wanted:
            self._cache.observe(body)
            self._queue.add(ref)

    def forget(self, ref: Ref) -> None:
        """Drop everything about an object that was deleted."""
        self._cache.remove(ref.uid)
        self._left.discard(ref.uid)
        self._queue.discard(ref)

    async def work(self, large: bool = False) -> None:
        """Reconcile large or small objects from the work queue, forever; several tasks can."""
        while True:
            leave_if_cancelled()
            ref = await self._queue.get(large)
            began = time.monotonic()
            await process(self._queue, ref, self.reconcile(ref))
            if large:
                await asyncio.sleep(min(RESTS * (time.monotonic() - began), MAX_REST_SECONDS))

    async def reconcile(self, ref: Ref) -> float | None:
        """Carry out steps until none is left; return after how many seconds to reconcile again."""
        if ref.uid in self._left:
            return None
        try:
            cached = self._cache.get(ref.uid)
            if not cached and (wait := await self._postponed(ref)):
                return wait
            result = Result(cached or await self._read(ref))
            for _ in range(MAX_STEPS):
                if result.body is None:
                    return result.requeue_after
                result = await self._step(ref, result.body, is_fresh=result.body is not cached)
        except Exception:
            self._cache.invalidate(ref.uid)
            raise
        return PACE_SECONDS

    async def _postponed(self, ref: Ref) -> float:
        """Return how long to postpone an object of which only counts can have changed, or 0.

        It saves a read of a large object each time one of its jobs completes.
        """
        write = self._cache.last_write_if_current(ref.uid)
        wait = self._reporter.seconds_until_write(ref.uid)
        if not write or wait <= 0:
            return 0
        group = await self._store.read(ref.uid)
        return wait if group is not None and group.state == write.state else 0

    async def _read(self, ref: Ref) -> Body | None:
        body = await self._api.read(ref)
        if body is None:
            self._cache.remove(ref.uid)
        elif ref.uid in self._cache.running:
            self._cache.observe(body)
            self._watch.track(ref, body)
        return body

    async def _step(self, ref: Ref, body: Body, is_fresh: bool) -> Result:
        """Read the group, decide, and carry out one step."""
        try:
            observed = await self._observe(ref, body)
            step = next_step(
                observed.resource,
                observed.group,
                observed.incarnation,
                now_ms(),
                observed.claimant,
                bool(observed.answers),
                bool(observed.resolutions),
            )
            if step in NEEDS_FRESH and not is_fresh:
                return Result(await self._read(ref))
            return await self._steps.take(step, observed)
        except ApiError as error:
            if isinstance(error, Conflict) or error.code == 404:
                return Result(await self._read(ref))
            raise
        except RedisError as error:
            problem = redis_problem(str(error), is_transient(error))
            state = self._cache.unreported_state(ref.uid)
            await self._reporter.report(ref, body, problem=problem, state=state)
            raise
        except (RedisStateLostError, NewerFormatError, CorruptKeyError) as refusal:
            return await self._steps.refuse(ref, body, refusal)

    async def _observe(self, ref: Ref, body: Body) -> Observation:
        resource = Resource.read(body, self._default_ttl)
        claimant, verdict = await self._releases.claimant(body)
        if claimant in OTHERS:
            return Observation(ref, body, resource, None, "", None, claimant, verdict)
        answers = standing_answers(body)
        resolutions = standing_resolutions(body)
        few = (
            bool(answers or resolutions)
            or len((body.get("spec") or {}).get("jobs") or ()) <= FEW_JOBS
        )
        group, jobs, incarnation = await self._store.read_with(
            ref.uid,
            jobs=few,
            incarnation=not resource.is_ours or claimant is not Claimant.OURS,
        )
        if group is None and not incarnation:
            incarnation = await self._store.incarnation()
        if state := self._cache.unreported_state(ref.uid):
            resource = replace(resource, state=resource.state or state)
        return Observation(
            ref,
            body,
            resource,
            group,
            incarnation,
            jobs,
            claimant,
            verdict,
            due_answers(answers, group, jobs or ()),
            due_resolutions(resolutions, group, jobs or ()),
        )
