"""What a world consists of: the model, the workers, and what was last read from Redis."""

from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.sagas.histories.definitions import Definition
from tests.sagas.histories.ground import BUDGETS, LONGEST, QUEUES, AnyHolder, Ground
from tests.sagas.histories.group_model import Group
from tests.sagas.histories.instant import run
from tests.sagas.histories.job_model import Job, undo_of
from tests.sagas.histories.look import Seen

T = TypeVar("T")


class Records:
    """Some groups, their queues and their workers."""

    def __init__(self, ground: Ground, budget: int) -> None:
        self.ground = ground
        self.budget = budget
        self.prefix = ground.prefix
        self.queues = ground.queues
        self.store = ground.kits[budget].store
        self.looker = ground.kits[budget].looker
        self.definitions: dict[str, Definition] = {}
        self.groups: dict[str, Group] = {}
        # Groups of which nothing was left, so that not even a tombstone exists.
        self.lost: set[str] = set()
        # Groups whose removal has begun: only the rest of the removal is still checked.
        self.leaving: dict[str, Group] = {}
        # Jobs that were active when the removal of their group began; the removal may skip them.
        self.let_go: set[str] = set()
        # Jobs of removed groups that were active at the time of the removal.
        self.strays: list[Job] = []
        self.holders: dict[str, AnyHolder] = {}
        self.late_holders: list[AnyHolder] = []
        self.events: dict[str, list[str]] = {}
        # Whether a key of the queue of the jobs of onEnd has the wrong type.
        self.ends_blocked = False
        self.undos_added: Counter[str] = Counter()
        self.last_event = dict.fromkeys(QUEUES, "0-0")
        # Entries of the wake-up list that a foreign worker took, and its tokens.
        self.thieves: dict[str, str] = {}
        # The groups that new events name, and the last event that was followed, by queue.
        self.hinted: dict[str, set[str]] = {queue: set() for queue in QUEUES}
        self.followed = dict.fromkeys(QUEUES, "0-0")
        # What was read after the last step, and after the step before it.
        self.seen: Seen
        self.before: Seen
        # Whether the last step of a stock client deleted events.
        self.deleting = False
        # Whether the last step and its checks succeeded.
        self.sound = True

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run an operation in Redis; `sound` is False until the next check."""
        self.sound = False
        return run(work)

    # Lookups in the model.

    @property
    def jobs(self) -> list[Job]:
        """All jobs that stock clients can see."""
        groups = [*self.groups.values(), *self.leaving.values()]
        return [*(job for group in groups for job in group.jobs), *self.strays]

    def at(self, *places: str, queue: str | None = None) -> list[Job]:
        """Return the jobs in these places, of all queues or of one."""
        return [job for job in self.jobs if job.place in places and queue in {None, job.queue}]

    def pending_in(self, queue: str, name: str) -> list[Job]:
        """Return the jobs in the list or set with this name."""
        if name == "delayed":
            return self.at("delayed", queue=queue)
        wait, paused = self.seen.lists[queue], self.seen.aside[queue]
        jobs = self.at("waiting", queue=queue)
        if name == "prioritized":
            return [job for job in jobs if job.id not in {*wait, *paused}]
        return [job for job in jobs if job.id in (wait if name == "wait" else paused)]

    @property
    def held(self) -> list[Job]:
        """Return the active jobs that have a worker."""
        return [job for job in self.at("active") if job.id in self.holders]

    def group_of(self, job: Job) -> Group | None:
        return self.groups.get(job.id.split("-")[0])

    def is_indexed(self, group: Group) -> bool:
        """Return whether a resync finds the group even if it is not parked."""
        return (group.id, group.queue) in self.seen.index and group.queue in self.seen.owners

    def forget_history(self, queue: str) -> None:
        """Record that the event stream of a queue was deleted."""
        for job in self.jobs:
            if job.queue == queue:
                job.history.clear()
        self.last_event[queue] = "0-0"
        self.hinted[queue].clear()

    def can_be_taken(self, queue: str) -> list[Job]:
        """Return the jobs of a queue that a worker may take."""
        if queue in self.seen.paused:
            return []
        aside = self.seen.aside[queue]
        return [job for job in self.at("waiting", queue=queue) if job.id not in aside]

    @property
    def long_queues(self) -> set[str]:
        """Return the queues whose lists were too long to search before the last step."""
        if self.budget > min(BUDGETS):
            return set()
        lists = (self.before.lists, self.before.aside)
        return {queue for each in lists for queue, ids in each.items() if len(ids) > LONGEST}

    def observe(self) -> None:
        before = getattr(self, "seen", None)
        gone = [group_id for group_id in self.definitions if group_id not in self.groups]
        groups = [*self.groups, *self.leaving, *gone[-2:]]
        self.seen = self.do(self.looker.look(self.last_event, list(dict.fromkeys(groups))))
        self.before = before or self.seen
        for queue in self.before.streams - self.seen.streams:
            # Only the removal of the last readable group that used the queue deletes it.
            groups_ = [group for group in self.groups.values() if not group.broken]
            jobs = [job for group in groups_ for job in group.jobs]
            users = {job.id for job in jobs if job.queue == queue and job.history}
            assert not users or self.deleting, f"the events of {users} were deleted"
            self.forget_history(queue)
        for queue, event_id, fields in self.seen.events:
            self.last_event[queue] = event_id
            kind = fields["event"]
            if kind.startswith("group:"):
                self.events[fields["groupId"]].append(f"{kind} {fields.get('state', '')}".strip())
            elif kind == "added" and "group" in fields and fields["jobId"].endswith("-undo"):
                self.undos_added[fields["jobId"]] += 1
        # A removal may have stopped anywhere: the model of such a group follows Redis.
        places = dict(self.seen.places)
        for group in self.leaving.values():
            for member in group.members:
                if member.undo is None and f"{member.id}-undo" in places:
                    member.undo = undo_of(member)
            for job in group.jobs:
                if not self.is_replaced(job):
                    job.place = places.get(job.id, "gone")

    def is_replaced(self, job: Job) -> bool:
        """Return whether somebody added another job with the id of a job that is gone."""
        return any(stray.id == job.id and stray is not job for stray in self.strays)

    def is_leaving(self, job_id: str) -> bool:
        return job_id.split("-")[0] in self.leaving

    async def keys(self) -> list[str]:
        """Return every key of this world."""
        cursor, found = 0, set[str]()
        while True:
            cursor, page = await self.ground.redis.scan(cursor, f"{self.prefix}:*", count=1000)
            found.update(map(str, page))
            if cursor == 0:
                return sorted(found)

    async def clear(self) -> None:
        """Delete all keys."""
        if left := await self.keys():
            await self.ground.redis.unlink(*left)
