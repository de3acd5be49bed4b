"""The saga's store: one typed method per script, and the wake-up list.

Times are milliseconds. What a script refuses arrives as the exception of its code; whatever else
goes wrong is redis-py's own.
"""

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup import keys
from jobgroup.answers import Found, found_in, is_its_own, parsed, refusal
from jobgroup.errors import GroupNotFoundError, RefusedError, SpoiltKeyError
from jobgroup.observer import SILENT, Observer
from jobgroup.plan import Plan, pack_plans
from jobgroup.queues import Queues
from jobgroup.queues import now_ms as now_ms
from jobgroup.scripts import FOLDER, Call, Script, load, run_all
from jobgroup.snapshot import GroupJob, GroupState, Settled, Totals
from jobgroup.streams import Streams

GRACE = 5 * 60 * 1000
TOMBSTONE = 30 * 24 * 3600 * 1000
# Of one call that creates several groups: some two milliseconds of work.
BATCH_JOBS = 60
BATCH_BYTES = 1_000_000
# A group that ended stays parked with its score raised by these; see lua/includes/bands.lua.
FAILED_SCORE = 10**15
COMPLETED_SCORE = 2 * 10**15


class Store:
    """All that is ever asked of Redis about groups."""

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
        self._remove = load("remove_group", folder, observer)
        self._read = load("read_group", folder, observer)
        self._read_jobs = load("read_jobs", folder, observer)
        self._disown = load("disown_group", folder, observer)
        self._forbid = load("forbid_group", folder, observer)
        self._read_epoch = load("read_epoch", folder, observer)
        self._read_totals = load("read_totals", folder, observer)
        self.queues = Queues(redis, prefix, folder, observer)
        self.streams = Streams(redis, prefix)

    async def create(self, plans: Sequence[Plan]) -> list[bool | RefusedError]:
        """Create groups, each atomically; say of each whether it is new, or why it is refused."""
        calls = [self._creation(batch) for batch in _batches(plans)]
        return [
            each for answer in await run_all(self.redis, calls) for each in self._created(answer)
        ]

    async def make(self, plan: Plan) -> Found | RefusedError:
        """Create a group and read it with its jobs in the same round trip, or say why not."""
        calls = [self._creation([plan]), *self._looks(plan.group_id, jobs=True)]
        answer, *rows = await run_all(self.redis, calls, in_order=True)
        (made,) = self._created(answer)
        return made if isinstance(made, RefusedError) else found_in(plan.group_id, rows, jobs=True)

    def _creation(self, plans: Sequence[Plan]) -> Call:
        slots = {"parked": keys.parked(self.prefix), "now": now_ms(), "prefix": self.prefix}
        return self._create, {**slots, "plans": pack_plans(plans)}

    def _created(self, answers: Any) -> list[bool | RefusedError]:
        if isinstance(answers, Exception):
            raise answers
        self._observer.created(answers.count(1))
        return [
            bool(answer) if isinstance(answer, int) else refusal(answer, SpoiltKeyError)
            for answer in answers
        ]

    async def settle(
        self, tokens: Sequence[tuple[str, str]], request: str = "", grace: int = GRACE
    ) -> list[Settled | Exception | None]:
        """Move groups on, each given with the wake-up entry that led to it or with none.

        The answer is None for a group that is not there, or the error of that group alone.
        """
        about = {"now": now_ms(), "request": request, "grace": grace}
        calls = [
            (self._settle, {**self._slots(group_id), **about, "token": token})
            for group_id, token in tokens
        ]
        answers = await run_all(self.redis, calls)
        return [
            answer
            if answer is None or isinstance(answer, Exception)
            else self._settled(group_id, answer)
            for (group_id, _), answer in zip(tokens, answers, strict=True)
        ]

    def _settled(self, group_id: str, answer: Sequence[Any]) -> Settled | SpoiltKeyError:
        try:
            settled = parsed(Settled, group_id, answer)
        except SpoiltKeyError as error:
            return error
        if settled.changed:
            self._observer.moved(settled.before, settled.group, settled.undone, settled.undo_failed)
        return settled

    async def cancel(self, group_id: str, grace: int = GRACE) -> GroupState:
        """Give a running group up."""
        row = await self._call(self._cancel, group_id, now=now_ms(), grace=grace)
        group = parsed(GroupState, group_id, row)
        self._observer.moved("ACTIVE", group)
        return group

    async def remove(self, group_id: str) -> None:
        """Remove an ended group and all its keys, but for its tombstone."""
        while await self._call(self._remove, group_id, now=now_ms(), remembers=TOMBSTONE):
            pass

    async def disown(self, group_id: str) -> bool:
        """Let go of a group; one that is not there can never be made any more."""
        return bool(await self._call(self._disown, group_id, now=now_ms(), remembers=TOMBSTONE))

    async def forbid(self, group_id: str) -> bool:
        """Say whether a group is there; one that is not can never be made any more."""
        return bool(await self._call(self._forbid, group_id, now=now_ms(), remembers=TOMBSTONE))

    async def epoch(self) -> str:
        """Return what this life of Redis is called; one that lost its data gets another name."""
        return str(await self._read_epoch(self.redis, **self._epoch_slots()))

    async def read_many(self, group_ids: Sequence[str]) -> list[GroupState]:
        """Read those of these groups that are there; what is wrong with one holds up no other."""
        calls = [(self._read, self._slots(group_id)) for group_id in group_ids]
        rows = await run_all(self.redis, calls)
        found = []
        for group_id, row in zip(group_ids, rows, strict=True):
            if isinstance(row, Exception):
                if not is_its_own(row):
                    raise row
            elif row:
                with contextlib.suppress(SpoiltKeyError):
                    found.append(parsed(GroupState, group_id, row))
        return found

    async def read(self, group_id: str) -> GroupState | None:
        """Read a group, or nothing if there is none."""
        row = await self._call(self._read, group_id)
        return parsed(GroupState, group_id, row) if row else None

    async def read_jobs(self, group_id: str) -> list[GroupJob]:
        """Read where each member is now."""
        rows = await self._call(self._read_jobs, group_id)
        if rows is None:
            raise GroupNotFoundError(group_id)
        return GroupJob.parse_all(rows)

    async def look(self, group_id: str, jobs: bool = False, epoch: bool = False) -> Found:
        """Read a group, and what else is wanted, in one round trip."""
        rows = await run_all(self.redis, self._looks(group_id, jobs, epoch), in_order=True)
        return found_in(group_id, rows, jobs)

    def _looks(self, group_id: str, jobs: bool, epoch: bool = False) -> list[Call]:
        # Jobs that are older than their group would not fit its counts.
        calls: list[Call] = [(self._read, self._slots(group_id))]
        if jobs:
            calls.append((self._read_jobs, self._slots(group_id)))
        if epoch:
            calls.append((self._read_epoch, self._epoch_slots()))
        return calls

    async def owning_queue(self, group_id: str) -> str:
        """Return the queue on whose stream the group's events stand."""
        queue = await self.redis.hget(keys.parent(self.prefix, group_id), "queue")
        if queue is None:
            raise GroupNotFoundError(group_id)
        return str(queue)

    async def resources(self, owner: str, group_ids: Sequence[str]) -> dict[str, str]:
        """Return what an owner calls those of these groups that are there and its own."""
        pipeline = self.redis.pipeline(transaction=False)
        for group_id in group_ids:
            pipeline.hmget(keys.parent(self.prefix, group_id), "owner", "resource")
        found = {}
        answers = await pipeline.execute(raise_on_error=False)
        for group_id, answer in zip(group_ids, answers, strict=True):
            if isinstance(answer, Exception):
                if not is_its_own(answer):
                    raise answer
            elif answer[0] == owner:
                found[group_id] = str(answer[1])
        return found

    async def wakeups(self, limit: int) -> list[str]:
        """Return the first entries of the wake-up list; settling a group takes its entry off."""
        return cast(list[str], await self.redis.lrange(keys.wakeups(self.prefix), 0, limit - 1))

    async def wait_for_wakeup(self, seconds: float) -> None:
        """Block until a stock worker touches the wake-up list, or for so long."""
        await self.redis.bzpopmin(keys.marker(self.prefix), seconds)

    async def totals(self) -> Totals:
        """Count all groups by state, at the price of a few lookups."""
        answer = await self._read_totals(
            self.redis,
            parked=keys.parked(self.prefix),
            wakeups=keys.wakeups(self.prefix),
            events=keys.events(self.prefix, keys.BOOKS),
        )
        return Totals.parse(answer)

    async def parked(self, ended: bool = False) -> list[str]:
        """Return the unfinished groups that wait for their members, or also those that failed.

        All at once: settling a group parks it anew at another place, so pages would miss some.
        """
        until = f"({COMPLETED_SCORE if ended else FAILED_SCORE}"
        found = await self.redis.zrangebyscore(keys.parked(self.prefix), "-inf", until)
        return cast(list[str], found)

    async def set_aside(self, token: str) -> None:
        """Take an entry off the wake-up list that cannot be settled; a resync will try it again."""
        pipeline = self.redis.pipeline(transaction=True)
        pipeline.zadd(keys.parked(self.prefix), {keys.group_of(token): now_ms()})
        pipeline.lrem(keys.wakeups(self.prefix), 1, token)
        await pipeline.execute()

    def _epoch_slots(self) -> dict[str, Any]:
        return {"epoch": keys.epoch(self.prefix), "candidate": secrets.token_hex(8)}

    def _slots(self, group_id: str) -> dict[str, Any]:
        """Return what each script about one group takes."""
        parent = keys.parent(self.prefix, group_id)
        return {"parent": parent, "prefix": self.prefix, "gid": group_id}

    async def _call(self, script: Script, group_id: str, **slots: Any) -> Any:
        try:
            return await script(self.redis, **self._slots(group_id), **slots)
        except ResponseError as error:
            raise refusal(error) from None


def _batches(plans: Sequence[Plan]) -> Iterator[list[Plan]]:
    """Divide plans into what one call may create without keeping Redis from its other work."""
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
