"""The groups of one Redis: one typed method for each script.

Times are milliseconds. A refusal of a script is raised as the exception for its code; all other
errors are those of redis-py.
"""

import contextlib
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup.definition.answers import Answer
from jobgroup.definition.plan import Plan, pack_plans
from jobgroup.errors import CorruptKeyError, GroupNotFoundError, RefusedError
from jobgroup.model import names
from jobgroup.model.clock import GRACE, TOMBSTONE_MS, now_ms
from jobgroup.model.snapshot import (
    GroupJob,
    GroupState,
    JobDetails,
    JobFailure,
    OwnedGroup,
    Settled,
    Totals,
)
from jobgroup.store.connection import UNAVAILABLE
from jobgroup.store.details import read_details, read_failures, read_fields
from jobgroup.store.listing import Listing
from jobgroup.store.observer import SILENT, Observer
from jobgroup.store.queues import Queues
from jobgroup.store.replies import (
    GroupReading,
    GroupReply,
    SettleResult,
    is_its_own,
    read_group,
    read_jobs,
    read_reading,
    read_settled,
    read_value,
    refusal,
)
from jobgroup.store.reviews import Reviews
from jobgroup.store.rights import Rights
from jobgroup.store.scripts import FOLDER, Call, Script, load, run_all
from jobgroup.store.streams import Streams
from jobgroup.store.wakeups import Wakeups

# What one call may create: about two milliseconds of work for Redis.
BATCH_JOBS = 60
BATCH_BYTES = 1_000_000


class Store:
    """The groups below one prefix, with their queues, streams and wake-up list."""

    def __init__(
        self,
        redis: Redis,
        prefix: str = "bull",
        folder: Path = FOLDER,
        observer: Observer = SILENT,
    ) -> None:
        self.redis = redis
        self.prefix = prefix
        self._observer = observer
        self._create = load("create_groups", folder, observer)
        self._settle = load("settle_group", folder, observer)
        self._cancel = load("cancel_group", folder, observer)
        self._answer = load("answer_member", folder, observer)
        self._retry_undos = load("retry_undos", folder, observer)
        self._resolve_undo = load("resolve_undo", folder, observer)
        self._remove = load("remove_group", folder, observer)
        self._read = load("read_group", folder, observer)
        self._read_jobs = load("read_jobs", folder, observer)
        self._orphan = load("orphan_group", folder, observer)
        self._tombstone = load("tombstone_group", folder, observer)
        self._read_incarnation = load("read_incarnation", folder, observer)
        self._read_totals = load("read_totals", folder, observer)
        self.queues = Queues(redis, prefix, folder, observer)
        self.streams = Streams(redis, prefix)
        self.wakeups = Wakeups(redis, prefix, folder, observer)
        self.listing = Listing(redis, prefix, self.read_replies, folder, observer)
        self.reviews = Reviews(redis, prefix, folder, observer)
        self.rights = Rights(redis, prefix, folder, observer)

    async def ping(self) -> None:
        """Raise an error if Redis does not answer."""
        await self.redis.ping()

    async def aclose(self) -> None:
        """Close all connections."""
        await self.redis.aclose()

    async def create(self, plans: Sequence[Plan]) -> list[bool | RefusedError]:
        """Create groups, each atomically; return for each whether it is new, or its refusal."""
        await self.rights.check_once()
        calls = [self._creation(batch) for batch in _batches(plans)]
        return [
            result for reply in await run_all(self.redis, calls) for result in self._created(reply)
        ]

    async def create_and_read(self, plan: Plan) -> GroupReading | RefusedError:
        """Create a group and read it with its jobs in one round trip, or return the refusal."""
        await self.rights.check_once()
        calls = [self._creation([plan]), *self._reads(plan.group_id, jobs=True)]
        created, *replies = await run_all(self.redis, calls, in_order=True)
        (result,) = self._created(created)
        if isinstance(result, RefusedError):
            return result
        return read_reading(plan.group_id, replies, jobs=True)[0]

    def _creation(self, plans: Sequence[Plan]) -> Call:
        slots = {"parked": names.parked_key(self.prefix), "now": now_ms(), "prefix": self.prefix}
        return self._create, {**slots, "plans": pack_plans(plans)}

    def _created(self, replies: Any) -> list[bool | RefusedError]:
        if isinstance(replies, Exception):
            raise replies
        self._observer.groups_created(replies.count(1))
        return [
            bool(reply) if isinstance(reply, int) else refusal(reply, CorruptKeyError)
            for reply in replies
        ]

    async def settle(
        self,
        group_ids: Sequence[str],
        request: str = "",
        grace: int = GRACE,
        queue: str = "",
        snapshots: bool = False,
    ) -> list[SettleResult]:
        """Settle groups; `queue` owns groups whose pseudo parent may be gone."""
        about = {"request": request, "grace": grace, "queue": queue, "snapshot": int(snapshots)}
        calls = [(self._settle, {**self._slots(group_id), **about}) for group_id in group_ids]
        replies = await run_all(self.redis, calls)
        return [
            read_settled(group_id, reply, self._observer)
            for group_id, reply in zip(group_ids, replies, strict=True)
        ]

    async def cancel(self, group_id: str, grace: int = GRACE, by: str = "") -> GroupState:
        """Cancel a running group; record who asked for it."""
        return self._requested(
            group_id, await self._call(self._cancel, group_id, grace=grace, by=by)
        )

    async def retry_undos(
        self, group_id: str, job_ids: Sequence[str] = (), by: str = "", below: int | None = None
    ) -> GroupState:
        """Retry failed undos, all or those of some jobs; not if it was retried `below` times."""
        about = {"jobs": json.dumps(job_ids), "below": "" if below is None else below}
        reply = await self._call(self._retry_undos, group_id, grace=GRACE, by=by, **about)
        return self._requested(group_id, reply)

    async def resolve_undo(
        self, group_id: str, job_id: str, reason: str, by: str = ""
    ) -> GroupState:
        """Resolve the undo of a job that failed or waits; no worker runs it any more."""
        about = {"job": job_id, "reason": reason, "by": by}
        reply = await self._call(self._resolve_undo, group_id, grace=GRACE, **about)
        return self._requested(group_id, reply)

    def _requested(self, group_id: str, reply: str) -> GroupState:
        """Read the reply of a script that settles a group for a request."""
        settled = read_value(Settled, f"Group {group_id}", reply)
        self._observer.group_settled(settled)
        return cast(GroupState, settled.group)

    async def answer(self, group_id: str, job_id: str, answer: Answer) -> bool:
        """Finish a pending job without a worker; return False if this answer was given before."""
        said = {"outcome": answer.outcome, "text": answer.text, "digest": answer.digest}
        return bool(await self._call(self._answer, group_id, job=job_id, by=answer.by, **said))

    async def remove(self, group_id: str) -> None:
        """Remove an ended group and all its keys except its tombstone."""
        while await self._call(self._remove, group_id, now=now_ms(), remembers=TOMBSTONE_MS):
            pass

    async def remove_released(self, group_id: str) -> bool:
        """Remove an ended group; return False if another driver has removed it."""
        try:
            await self.remove(group_id)
        except GroupNotFoundError:
            return False
        self._observer.released_group_removed()
        return True

    async def orphan(self, group_id: str, release: bool = False) -> bool:
        """Remove the owner of a group; if there is no such group, tombstone its id.

        Drivers remove a released group after its end, unless its compensation failed.
        """
        slots = {"now": now_ms(), "remembers": TOMBSTONE_MS, "release": int(release)}
        found = await self._call(self._orphan, group_id, **slots)
        if found > 1:
            self._observer.group_released()
        return bool(found)

    async def tombstone(self, group_id: str) -> bool:
        """Return whether a group exists; if not, tombstone its id so that it cannot be created."""
        return bool(
            await self._call(self._tombstone, group_id, now=now_ms(), remembers=TOMBSTONE_MS)
        )

    async def incarnation(self) -> str:
        """Return the name of this data set; a Redis that lost its data gets a new one."""
        return str(await self._read_incarnation(self.redis, **self._incarnation_slots()))

    async def read_many(self, group_ids: Sequence[str]) -> list[GroupState]:
        """Read those of these groups that exist; skip a group that is due or cannot be read."""
        return [read.group for read in await self.read_replies(group_ids) if not read.due]

    async def read_replies(self, group_ids: Sequence[str]) -> list[GroupReply]:
        """Read those of these groups that exist; skip a group that cannot be read."""
        calls = [(self._read, self._slots(group_id)) for group_id in group_ids]
        replies = await run_all(self.redis, calls)
        found = []
        for group_id, reply in zip(group_ids, replies, strict=True):
            if isinstance(reply, Exception):
                if not is_its_own(reply):
                    raise reply
            elif reply:
                with contextlib.suppress(CorruptKeyError):
                    found.append(read_group(group_id, reply))
        return found

    async def read(self, group_id: str) -> GroupState | None:
        """Read a group; return None if there is no such group."""
        reply = await self._call(self._read, group_id)
        if not reply:
            return None
        read = read_group(group_id, reply)
        if not read.due:
            return read.group
        # Settle it, so that the state does not contradict the counts.
        with contextlib.suppress(*UNAVAILABLE):
            (settled,) = await self.settle([group_id], snapshots=True)
            if settled is None:
                return None  # it was removed meanwhile
            if isinstance(settled, Settled):
                return settled.group
        return replace(read.group, state=read.derived)

    async def read_jobs(self, group_id: str) -> list[GroupJob]:
        """Read the jobs of a group with their current status."""
        reply = await self._call(self._read_jobs, group_id)
        if reply is None:
            raise GroupNotFoundError(group_id)
        return read_jobs(group_id, reply)

    async def read_details(self, group_id: str, limit: int) -> list[JobDetails]:
        """Read the jobs of a group with their names and at most `limit` failures of each kind."""
        return await read_details(self.redis, self.prefix, await self.read_jobs(group_id), limit)

    async def read_failures(self, jobs: Sequence[GroupJob], limit: int) -> dict[str, JobFailure]:
        """Read why the first jobs and the first undos failed, at most `limit` of each, by id."""
        return await read_failures(self.redis, self.prefix, jobs, limit)

    async def read_with(
        self, group_id: str, jobs: bool = False, incarnation: bool = False
    ) -> GroupReading:
        """Read a group, and its jobs and the incarnation if asked, in one round trip."""
        calls = self._reads(group_id, jobs, incarnation)
        reading, reply = read_reading(
            group_id, await run_all(self.redis, calls, in_order=True), jobs
        )
        if reply is None or not reply.due:
            return reading
        with contextlib.suppress(*UNAVAILABLE):
            await self.settle([group_id])
        reading, reply = read_reading(
            group_id, await run_all(self.redis, calls, in_order=True), jobs
        )
        if reply is not None and reply.due:
            return reading._replace(group=replace(reply.group, state=reply.derived))
        return reading

    def _reads(self, group_id: str, jobs: bool, incarnation: bool = False) -> list[Call]:
        # The jobs are read after the group: older ones would not fit its counts.
        calls: list[Call] = [(self._read, self._slots(group_id))]
        if jobs:
            calls.append((self._read_jobs, self._slots(group_id)))
        if incarnation:
            calls.append((self._read_incarnation, self._incarnation_slots()))
        return calls

    async def owning_queue(self, group_id: str) -> str:
        """Return the queue whose event stream has the events of a group."""
        queue = await self.redis.hget(names.parent_key(self.prefix, group_id), "queue")
        if queue is None:
            raise GroupNotFoundError(group_id)
        return str(queue)

    async def owned(self, owner: str, group_ids: Sequence[str]) -> dict[str, OwnedGroup]:
        """Return those of these groups that exist and belong to an owner."""
        parents = [names.parent_key(self.prefix, group_id) for group_id in group_ids]
        replies = await read_fields(self.redis, parents, "owner", "resource", "queue")
        found = {
            group_id: (str(resource), str(queue))
            for group_id, (its_owner, resource, queue) in zip(group_ids, replies, strict=True)
            if its_owner == owner
        }
        hashes = [
            names.group_key(self.prefix, queue, group_id) for group_id, (_, queue) in found.items()
        ]
        sizes = await read_fields(self.redis, hashes, "totalJobs")
        return {
            group_id: OwnedGroup(resource, int(jobs) if jobs and jobs.isdecimal() else 0)
            for (group_id, (resource, _)), (jobs,) in zip(found.items(), sizes, strict=True)
        }

    async def totals(self) -> Totals:
        """Count all groups by state with a few lookups."""
        reply = await self._read_totals(
            self.redis,
            parked=names.parked_key(self.prefix),
            wakeups=names.wakeups_key(self.prefix),
            events=names.events_key(self.prefix, names.LEDGER_QUEUE),
        )
        return read_value(Totals, names.ledger_key(self.prefix), reply)

    def _incarnation_slots(self) -> dict[str, Any]:
        return {
            "incarnation": names.incarnation_key(self.prefix),
            "candidate": secrets.token_hex(8),
        }

    def _slots(self, group_id: str) -> dict[str, Any]:
        """Return the slots that every script about one group has."""
        parent = names.parent_key(self.prefix, group_id)
        return {"parent": parent, "prefix": self.prefix, "gid": group_id}

    async def _call(self, script: Script, group_id: str, **slots: Any) -> Any:
        try:
            return await script(self.redis, **self._slots(group_id), **slots)
        except ResponseError as error:
            raise refusal(error) from None


def _batches(plans: Sequence[Plan]) -> Iterator[list[Plan]]:
    """Split plans into calls, none of which blocks Redis for long."""
    batch: list[Plan] = []
    jobs = size = 0
    for plan in plans:
        jobs, size = jobs + len(plan.job_ids), size + len(plan.packed)
        if batch and (jobs > BATCH_JOBS or size > BATCH_BYTES):
            yield batch
            batch, jobs, size = [], len(plan.job_ids), len(plan.packed)
        batch.append(plan)
    if batch:
        yield batch
