"""A group's state -> the status and Events of its object, written when they changed.

Changes of counts alone are written at a limited rate, to limit the load on the API server: the
wait is returned, and the reconciler puts the object into its queue again. While other objects wait,
the first status of a group is written only if the group still runs after half a second.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress

from handlers.failpoints import failpoint
from handlers.jobgroups.cache import Body, ObjectCache
from handlers.jobgroups.queue_watch import QueueWatch
from handlers.kube.client import ApiClient, ApiError, StatusRefusedError
from handlers.kube.refs import Ref, ref_of
from handlers.kube.workqueue import WorkQueue, soonest
from jobgroup.model.clock import now_ms
from jobgroup.model.names import job_id
from jobgroup.model.snapshot import ENDED, GroupJob, GroupState, JobFailure
from jobgroup.resource.answers import AnswerState, answer_states, standing_answers
from jobgroup.resource.conditions import Problem
from jobgroup.resource.decisions import Resource, own_status, patience, requeue_at
from jobgroup.resource.events import (
    ResourceEvent,
    event_of_refused_status,
    events_of_problem,
    events_of_waiting_jobs,
    events_since,
    to_kubernetes_event,
)
from jobgroup.resource.listeners import (
    missing_workers_message,
    waiting_jobs,
    waiting_jobs_message,
)
from jobgroup.resource.reasons import NO_WORKER
from jobgroup.resource.resolutions import are_awaited, standing_resolutions
from jobgroup.resource.status import (
    MAX_FAILURES,
    NO_ANSWERS,
    NONE,
    derive_status,
    ready_reason,
    skipped_state,
    with_reported,
)
from jobgroup.store.store import Store

logger = logging.getLogger(__name__)

# The shortest time between two writes of counts. It grows with the size of the object, because the
# API server stores the whole object with each write.
PACE_SECONDS = 1.0
PACE_BYTES = 50_000
# Undos without a worker are reported after this time: workers may still be starting.
WORKER_START_SECONDS = 3.0
# How often to look whether a job or an undo that waits has an answer or a resolution in the spec.
ANSWER_SECONDS = 5.0
# How often to look for workers while there is none, and after one was found.
NO_WORKER_SECONDS = 5.0
WORKER_SECONDS = 60.0


class Reporter:
    """Writes the status and the Events of objects."""

    def __init__(
        self,
        api: ApiClient,
        store: Store,
        cache: ObjectCache,
        watch: QueueWatch,
        queue: WorkQueue[Ref],
        default_ttl: int | None = None,
    ) -> None:
        """Objects without a time to live have this one, if it is given."""
        self._default_ttl = default_ttl
        self._api = api
        self._watch = watch
        self._store = store
        self._cache = cache
        self._queue = queue

    async def write(self, write: Awaitable[Body]) -> Body:
        """Await a write and record it in the cache."""
        body = await write
        self._cache.record_write(body)
        if ref_of(body).is_large:
            await asyncio.sleep(0)  # recording it took milliseconds, and so does what follows
        return body

    async def report(
        self,
        ref: Ref,
        body: Body,
        group: GroupState | None = None,
        jobs: Sequence[GroupJob] | None = None,
        problem: Problem | None = None,
        state: str = "",
    ) -> float | None:
        """Update the status; return after how many seconds the object must be reconciled again.

        `state` is the state to report where there is no group. `jobs` are read if they are needed
        and were not passed.
        """
        current = own_status(body)
        if group and not problem and self._gives_way(ref, body, group):
            return self._requeue_after(body, group)
        if group and not group.ended and group.state == current.get("state"):
            wait = self.seconds_until_write(ref.uid)
            if wait > 0:
                return soonest(wait, self._requeue_after(body, group))
            if ready_reason(current) == NO_WORKER and not self._watch.is_checked(ref.uid):
                # A new leader does not know yet whether a worker has come.
                return soonest(NO_WORKER_SECONDS, self._requeue_after(body, group))
        if jobs is None:
            jobs = await self._store.read_jobs(ref.uid) if group else []
        unheard, check_after = await self._undos_without_worker(group, jobs)
        waiting = Counter[str]()
        if group and group.state == "ACTIVE":
            waiting = waiting_jobs(jobs, self._watch.unserved_for(ref.uid))
            unheard = waiting_jobs_message(waiting)
        failures = await self._failures(body, jobs)
        answers = answer_states(standing_answers(body), group, jobs) if group else {}
        is_awaited = are_awaited(standing_resolutions(body), group, jobs)
        if is_awaited or "Waiting" in answers.values():
            check_after = soonest(check_after, ANSWER_SECONDS)
        if group and (passed := skipped_state(current.get("state") or "", group)):
            body = await self._update(ref, body, passed, jobs, failures)
        body = await self._update(
            ref, body, group, jobs, failures, problem, state, unheard, waiting, answers
        )
        if own_status(body).get("state") in ENDED:
            self._cache.remove(ref.uid)
        return soonest(check_after, self._requeue_after(body, group))

    def _requeue_after(self, body: Body, group: GroupState | None) -> float | None:
        return requeue_after(Resource.read(body, self._default_ttl), group)

    def seconds_until_write(self, uid: str) -> float:
        """Return how long changes of counts alone must wait; 0 or less if they need not."""
        write = self._cache.last_write(uid)
        if write is None:
            return 0.0
        return write.at + max(PACE_SECONDS, write.size / PACE_BYTES) - time.monotonic()

    def _gives_way(self, ref: Ref, body: Body, group: GroupState) -> bool:
        """Postpone the report if other objects are more urgent; return whether it was postponed.

        A large group takes longer than any report may wait.
        """
        wait = patience(Resource.read(body), group, now_ms())
        if not wait or ref.is_large or not self._queue.is_busy():
            return False
        failpoint("postpone")
        self._cache.mark_unreported(ref.uid)
        self._queue.add_when_idle(ref, wait / 1000)
        return True

    async def post_end(self, ref: Ref, body: Body, group: GroupState) -> None:
        """Post the last Events of an object that is deleted: its status is not written any more."""
        jobs = await self._store.read_jobs(ref.uid) if group.undo_failed_count else []
        failures = await self._failures(body, jobs)
        events = events_since(own_status(body), group, _names(ref, body), failures)
        await self.post(ref, body, events)

    async def _update(
        self,
        ref: Ref,
        body: Body,
        group: GroupState | None,
        jobs: Sequence[GroupJob],
        failures: Mapping[str, JobFailure],
        problem: Problem | None = None,
        state: str = "",
        unheard: str = "",
        waiting: Mapping[str, int] | None = None,
        answers: Mapping[str, AnswerState] = NO_ANSWERS,
    ) -> Body:
        """Post new Events and write the status, if it changed."""
        current, names = own_status(body), _names(ref, body)
        status = derive_status(
            body["metadata"]["generation"],
            {**current, "state": state} if state else current,
            now_ms(),
            group,
            jobs,
            names,
            problem,
            unheard,
            failures,
            answers,
        )
        if status == current:
            return body
        events = events_since(current, group, names, failures) if group else []
        events += events_of_waiting_jobs(current, waiting or {})
        if problem:
            events += events_of_problem(current, problem)
        # Events first: after a crash, a status that is already written would suppress them.
        await self.post(ref, body, events)
        failpoint("status")
        try:
            return await self.write(self._api.put_status(body, status))
        except StatusRefusedError as error:
            with suppress(ApiError):  # the refused status is reported
                await self.post(ref, body, [event_of_refused_status(error.code, str(error))])
            raise

    async def post(self, ref: Ref, body: Body, events: Sequence[ResourceEvent]) -> None:
        """Post Events about an object; one that exists is neither posted nor logged again."""
        for each in events:
            failpoint("event")
            event = to_kubernetes_event(each, body, now_ms())
            if await self._api.post_event(ref.namespace, event):
                level = logging.WARNING if each.kind == "Warning" else logging.INFO
                job = {"job": each.job} if each.job else {}
                logger.log(level, "%s: %s", each.reason, each.message, extra=ref.context | job)

    async def _failures(self, body: Body, jobs: Sequence[GroupJob]) -> Mapping[str, JobFailure]:
        """Return why jobs and undos failed, as far as it is known."""
        if not any("failed" in (job.status, job.undo) for job in jobs):
            return NONE
        found = await self._store.read_failures(jobs, MAX_FAILURES)
        return with_reported(found, own_status(body))

    async def _undos_without_worker(
        self, group: GroupState | None, jobs: Sequence[GroupJob]
    ) -> tuple[str, float | None]:
        """Return where undos wait without a worker, and after how many seconds to check again."""
        if group is None or group.state != "COMPENSATING":
            return "", None
        age = (now_ms() - (group.compensating_at or group.failed_at or 0)) / 1000
        if age < WORKER_START_SECONDS:
            return "", WORKER_START_SECONDS - age
        connections = await self._store.queues.connections()
        unheard = missing_workers_message(self._store.prefix, jobs, connections)
        return unheard, NO_WORKER_SECONDS if unheard else WORKER_SECONDS


def requeue_after(resource: Resource, group: GroupState | None) -> float | None:
    """Return the seconds until a deadline or a time to live requires a step."""
    again = requeue_at(resource, group)
    return None if again is None else max(0.0, (again - now_ms()) / 1000)


def _names(ref: Ref, body: Body) -> dict[str, str]:
    """Return the names of an object's jobs by job id."""
    jobs = body["spec"].get("jobs") or ()
    return {job_id(ref.uid, index): job["name"] for index, job in enumerate(jobs)}
