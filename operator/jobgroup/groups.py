"""The Python API: create, read, cancel and remove groups, and wait for them.

All methods are safe to call while workers and drivers run. Only a driver moves groups from state to
state; see jobgroup/driver.py.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self

from jobgroup.definition.answers import Answer, completion, failure
from jobgroup.definition.lifetime import check_lifetime
from jobgroup.definition.plan import Plan, plan_group
from jobgroup.definition.requests import check_by, check_reason
from jobgroup.definition.spec import check_group_id, generate_group_id, parse_group
from jobgroup.errors import (
    GroupNotFoundError,
    InvalidGroupStateError,
    InvalidJobStateError,
    InvalidSpecError,
    JobGroupError,
    JobNotFoundError,
)
from jobgroup.model import names
from jobgroup.model.clock import FAILOVER_SECONDS, backoff
from jobgroup.model.snapshot import (
    ENDED,
    STATES,
    GroupEvent,
    GroupJob,
    GroupNode,
    GroupPage,
    GroupState,
    JobDetails,
    PrunedPage,
    ResultPage,
    State,
)
from jobgroup.store.connection import RedisError, connect, is_transient, leave_if_cancelled
from jobgroup.store.listing import MAX_GROUPS, Filters
from jobgroup.store.reviews import Cursor
from jobgroup.store.store import Store

# Less than the five seconds after which redis-py 8 ends a read.
_BLOCK_MS = 2000
MAX_FAILURES = 100
# How many ids an error lists.
MAX_NAMED = 10
PRUNED_STATES: tuple[State, ...] = ("COMPLETED", "FAILED")
# A hundred years.
MAX_AGE_SECONDS = 100 * 365 * 24 * 3600
_KINDS = frozenset({"group:completed", "group:compensating", "group:failed"})


class JobGroups:
    """The groups in one Redis below one BullMQ prefix."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def connect(cls, url: str = "redis://127.0.0.1:6379/0", prefix: str = "bull") -> Self:
        """Open a client; close it with `aclose` or use it as a context manager.

        Raise InvalidSpecError if the URL or the prefix cannot be used.
        """
        return cls(Store(connect(url, prefix), prefix))

    async def add_group(
        self,
        name: str,
        jobs: Sequence[Mapping[str, Any]],
        compensation: Mapping[str, Any] | None = None,
        group_id: str | None = None,
        ttl: int | None = None,
        deadline: int | None = None,
        on_end: Sequence[Mapping[str, Any]] | None = None,
    ) -> GroupNode:
        """Create a group with all its jobs, or nothing.

        A driver removes the group `ttl` seconds after its end, unless its compensation failed, and
        cancels it if it still runs `deadline` seconds after its creation.
        `on_end` are jobs to add when it ends.
        """
        group = {
            "name": name,
            "jobs": jobs,
            "compensation": compensation,
            "group_id": group_id,
            "ttl": ttl,
            "deadline": deadline,
            "on_end": on_end,
        }
        (node,) = await self.add_groups([group])
        if isinstance(node, JobGroupError):
            raise node
        return node

    async def add_groups(
        self, groups: Sequence[Mapping[str, Any]]
    ) -> list[GroupNode | JobGroupError]:
        """Create many groups in one pipeline, each of them atomically.

        An invalid definition is raised before anything is sent. If Redis refuses a group, its
        result is the exception, and the other groups are created.
        """
        plans = [_plan(group) for group in groups]
        results = await self.store.create(plans)
        return [
            result if isinstance(result, JobGroupError) else self._node(plan, group["jobs"])
            for plan, group, result in zip(plans, groups, results, strict=True)
        ]

    async def get_group_state(self, group_id: str) -> GroupState | None:
        """Return a group's state and counts, or None if there is no such group."""
        with contextlib.suppress(InvalidSpecError):
            check_group_id(group_id)
            return await self.store.read(group_id)
        return None

    async def list_groups(
        self,
        state: State | None = None,
        name: str | None = None,
        queue: str | None = None,
        older_than: float | None = None,
        owner: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> GroupPage:
        """Return a page of the groups that match all filters; see GroupPage for the next one.

        Groups of a state are sorted by the time since when they are in it, which must be
        `older_than` seconds ago; without a state, running groups are first. `queue` is the owning
        queue. At most 1,000 groups are examined, so a page may be short or empty and still have a
        cursor. A page has at most `limit` groups, and in addition those that a driver is about to
        settle. A group that changes its state meanwhile may be on two pages.
        """
        if state not in (None, *STATES):
            raise InvalidSpecError(f"state: {state!r} is none of {', '.join(STATES)}")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_GROUPS:
            raise InvalidSpecError(f"limit: {limit!r} must be a number from 1 to {MAX_GROUPS}")
        filters = Filters(state, _age(older_than), name or "", queue or "", owner or "")
        return await self.store.listing.groups(filters, limit, cursor)

    async def get_group_jobs(self, group_id: str) -> list[GroupJob]:
        """Return the jobs of a group with their current status."""
        return await self.store.read_jobs(group_id)

    async def get_job_details(self, group_id: str, limit: int = MAX_FAILURES) -> list[JobDetails]:
        """Return the jobs of a group with their names, and why jobs and undos failed.

        At most `limit` failures of jobs and as many of undos are read. This costs a lookup for each
        job; `get_group_jobs` needs one call.
        """
        return await self.store.read_details(group_id, limit)

    async def get_group_results(self, group_id: str, cursor: str | None = None) -> ResultPage:
        """Return a page of what the jobs of a group returned, in the order of the definition.

        Jobs that have not completed are left out. A page has at most 200 values.
        """
        return await self.store.listing.results(group_id, cursor)

    async def cancel_group(self, group_id: str, by: str = "") -> GroupState:
        """Cancel a group: drop its pending jobs and undo the completed ones.

        `by` is recorded as who asked for it.
        """
        try:
            return await self.store.cancel(group_id, by=check_by(by))
        except InvalidGroupStateError as refusal:
            state = str(refusal)
            if state == "COMPLETED":
                raise InvalidGroupStateError("Cannot cancel a completed group") from None
            raise InvalidGroupStateError(f"Cannot cancel group in state {state}") from None

    async def complete_job(
        self, group_id: str, job: str, value: Any = None, by: str = ""
    ) -> GroupState:
        """Complete a pending job of a running group without a worker; return the group.

        `job` is the name of the job if only one has it, else its id. `value` is its return value,
        which must be JSON and have at most 1 MB. `by` is recorded as who completed it. The first
        answer holds: the same call again changes nothing, and another value is refused.
        """
        return await self._answer(group_id, job, completion(value, by), "complete")

    async def fail_job(self, group_id: str, job: str, reason: str, by: str = "") -> GroupState:
        """Fail a pending job of a running group for good without a worker; return the group.

        As `complete_job`; no attempts follow.
        """
        return await self._answer(group_id, job, failure(reason, by), "fail")

    async def _answer(self, group_id: str, job: str, answer: Answer, verb: str) -> GroupState:
        (job_id,) = await self._job_ids(group_id, [job])
        try:
            await self.store.answer(group_id, job_id, answer)
        except InvalidJobStateError as refusal:
            raise InvalidJobStateError(
                f'Cannot {verb} job "{job}" of group {group_id}: it {refusal}'
            ) from None
        except InvalidGroupStateError as refusal:
            raise InvalidGroupStateError(
                f"Cannot {verb} a job of a group in state {refusal}"
            ) from None
        state = await self.store.read(group_id)
        if state is None:
            raise GroupNotFoundError(group_id)
        return state

    async def retry_undos(
        self, group_id: str, jobs: Sequence[str] | None = None, by: str = ""
    ) -> GroupState:
        """Retry the failed undos of a group in FAILED_COMPENSATION, which compensates again.

        `jobs` are names or ids of jobs whose undos are retried; by default, all undos that failed
        and were not resolved. Each gets all its attempts again; one that somebody removed is made
        again. A second call while they run changes nothing.
        """
        if jobs is not None and not jobs:
            raise InvalidSpecError("jobs: name at least one job, or leave jobs out for all")
        job_ids = await self._job_ids(group_id, jobs) if jobs else []
        try:
            return await self.store.retry_undos(group_id, job_ids, check_by(by))
        except InvalidGroupStateError as refusal:
            raise InvalidGroupStateError(
                f"Cannot retry undos of group in state {refusal}"
            ) from None
        except InvalidJobStateError as refusal:
            raise InvalidJobStateError(_why_not("retry", group_id, str(refusal))) from None

    async def resolve_undo(self, group_id: str, job: str, reason: str, by: str = "") -> GroupState:
        """Resolve the undo of a job: somebody has undone the effect, or it is to stay.

        `job` is a name or an id, and `reason` says what was done. An undo that failed or waits can
        be resolved; no worker runs it after that. A second call changes nothing.
        """
        check_by(by), check_reason(reason)
        (job_id,) = await self._job_ids(group_id, [job])
        try:
            return await self.store.resolve_undo(group_id, job_id, reason, by)
        except InvalidGroupStateError as refusal:
            raise InvalidGroupStateError(
                f"Cannot resolve an undo of group in state {refusal}"
            ) from None
        except InvalidJobStateError as refusal:
            raise InvalidJobStateError(_why_not("resolve", group_id, str(refusal))) from None

    async def remove_group(self, group_id: str) -> None:
        """Remove an ended group with its jobs, undos and keys; its id is blocked for 30 days."""
        try:
            await self.store.remove(group_id)
        except InvalidGroupStateError as refusal:
            raise InvalidGroupStateError(f"Cannot remove group in state {refusal}") from None

    async def prune_groups(
        self,
        older_than: float,
        states: Sequence[State] = PRUNED_STATES,
        dry_run: bool = False,
    ) -> AsyncIterator[PrunedPage]:
        """Remove groups without a JobGroup that ended `older_than` seconds ago; yield each page.

        FAILED_COMPENSATION must be given to be removed, because a person has to act on it. With
        `dry_run`, nothing is removed. After each page this rests as long as the page took.
        """
        for state in states:
            if state not in ENDED:
                raise InvalidSpecError(f"states: {state!r} is none of {', '.join(sorted(ENDED))}")
        if (age := _age(older_than)) < 0:
            raise InvalidSpecError("older_than: a number of seconds is required")
        for state in dict.fromkeys(states):
            after, seen = Cursor(), True
            while seen:
                begun = time.monotonic()
                page = await self.store.reviews.prune(state, age, after, dry_run)
                took = time.monotonic() - begun
                yield PrunedPage(state, tuple(page.groups), page.owned)
                after, seen = page, bool(page.cursor)
                await asyncio.sleep(took)

    async def wait_for_group(self, group_id: str, timeout: float | None = None) -> GroupState:  # noqa: ASYNC109
        """Return a group when it has ended; raise TimeoutError after this number of seconds.

        Continue to wait while Redis is unavailable.
        """
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        overdue = f"Group {group_id} has not ended after {timeout} s"
        last, failures = "", 0
        while True:
            # Not asyncio.timeout: it cancels, and redis-py suppresses some cancellations.
            leave_if_cancelled()
            try:
                # Read the end of the stream before the state, so that no event is missed.
                queue = await self.store.owning_queue(group_id)
                last = last or await self.store.streams.newest_event(queue)
                state = await self.store.read(group_id)
                if state is None:
                    raise GroupNotFoundError(group_id)
                if state.ended:
                    return state
                if time.monotonic() > deadline:
                    raise TimeoutError(overdue)
                last = await self._pause(queue, group_id, last, deadline)
                failures = 0
            except RedisError as error:
                if not is_transient(error):
                    raise
                if time.monotonic() > deadline:
                    raise TimeoutError(overdue) from None
                failures += 1
                await asyncio.sleep(
                    min(backoff(failures, FAILOVER_SECONDS), max(0, deadline - time.monotonic()))
                )

    async def _pause(self, queue: str, group_id: str, last_id: str, deadline: float) -> str:
        """Wait for an event of this group, at most two seconds: a trimmed stream has none."""
        until = min(deadline, time.monotonic() + _BLOCK_MS / 1000)
        while (left := until - time.monotonic()) > 0:
            last_id, found = await self._read_events(queue, last_id, max(1, int(left * 1000)))
            if any(event.group_id == group_id for event in found):
                break
        return last_id

    async def events(self, queue: str, last_id: str | None = None) -> AsyncIterator[GroupEvent]:
        """Yield the group events of a queue after a given event; by default, new events."""
        last_id = last_id or await self.store.streams.newest_event(queue)
        while True:
            last_id, found = await self._read_events(queue, last_id)
            for event in found:
                yield event

    async def _read_events(
        self, queue: str, last_id: str, block: int = _BLOCK_MS
    ) -> tuple[str, list[GroupEvent]]:
        last_id, entries = await self.store.streams.read_stream(queue, last_id, block)
        found = []
        for entry_id, fields in entries:
            # A producer of BullMQ may add events with any names.
            if fields.get("event") in _KINDS and {"groupId", "groupName"} <= fields.keys():
                kind, group_id, name = (fields.pop(f) for f in ("event", "groupId", "groupName"))
                found.append(GroupEvent(entry_id, kind, group_id, name, fields))
        return last_id, found

    async def _job_ids(self, group_id: str, jobs: Sequence[str]) -> list[str]:
        """Return the ids of jobs that are given by their id, or by a name that only one job has."""
        known = {job.job_id for job in await self.store.read_jobs(group_id)}
        if known.issuperset(jobs):
            return list(jobs)
        ids: dict[str, list[str]] = {job_id: [job_id] for job_id in known}
        for each in await self.store.read_details(group_id, 0):
            if each.name not in known:
                ids.setdefault(each.name, []).append(each.job.job_id)
        return [_only(group_id, job, ids.get(job, [])) for job in jobs]

    def _node(self, plan: Plan, jobs: Sequence[Mapping[str, Any]]) -> GroupNode:
        prefix = self.store.prefix
        queues = [job["queueName"] for job in jobs]
        made = [
            GroupJob(job_id, names.job_key(prefix, queue, job_id), "pending", queue)
            for job_id, queue in zip(plan.job_ids, queues, strict=True)
        ]
        return GroupNode(plan.group_id, plan.group_name, tuple(made))

    async def aclose(self) -> None:
        """Close the client."""
        await self.store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _why_not(verb: str, group_id: str, detail: str) -> str:
    """Return the sentence for a refused request about undos."""
    job_id, _, why = detail.partition(" ")
    if not job_id:
        return f"Cannot {verb} undos of group {group_id}: none of the failed ones can be retried"
    return f"Cannot {verb} the undo of job {job_id}: it {why}"


def _only(group_id: str, job: str, ids: Sequence[str]) -> str:
    if not ids:
        raise JobNotFoundError(
            f'Group {group_id} has no job "{job}"; a job that its queue no longer has is found only'
            " by its id"
        )
    if len(ids) > 1:
        raise JobNotFoundError(
            f'Group {group_id} has {len(ids)} jobs with the name "{job}"; use an id: '
            + ", ".join(ids[:MAX_NAMED])
        )
    return ids[0]


def _age(older_than: float | None) -> int:
    """Return an age in milliseconds; -1 for none."""
    if older_than is None:
        return -1
    if not isinstance(older_than, int | float) or not 0 <= older_than <= MAX_AGE_SECONDS:
        raise InvalidSpecError(f"older_than: {older_than!r} must be a number of seconds from 0 on")
    return int(older_than * 1000)


def _plan(group: Mapping[str, Any]) -> Plan:
    definition = parse_group(
        group["name"], group["jobs"], group.get("compensation"), on_end=group.get("on_end")
    )
    lifetime = check_lifetime(group.get("ttl"), group.get("deadline"), ("ttl", "deadline"))
    if given := group.get("group_id"):
        return plan_group(definition, check_group_id(given), lifetime=lifetime)
    return plan_group(definition, generate_group_id(), is_id_generated=True, lifetime=lifetime)
