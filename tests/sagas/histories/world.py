"""A world of sagas in Redis and in the model; both are compared after every step.

Stock BullMQ code (stock_queue.py, node_queue.py), the scripts and the store change Redis. A step
makes the same change in the model (model.py), and `check` compares both.
"""

from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from jobgroup.definition.plan import Plan, plan_group
from jobgroup.definition.spec import parse_group
from jobgroup.model import names
from jobgroup.model.clock import GRACE
from jobgroup.model.snapshot import GroupState
from jobgroup.store.replies import SettleResult
from tests.sagas.histories.ground import BUDGETS, LONGEST, QUEUES, AnyHolder, Ground
from tests.sagas.histories.instant import run
from tests.sagas.histories.look import Seen
from tests.sagas.histories.model import Chosen, Group, Job, Member, undo_of

T = TypeVar("T")
Definition = list[dict[str, Any]]

A_LONG_WHILE = 3_600_000
NOT_LISTED = {"gone", "lost", "orphaned"}


class World:
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
        # Groups whose removal has begun: only the rest of the removal is still checked.
        self.leaving: dict[str, Group] = {}
        # Jobs that were active when the removal of their group began; the removal may skip them.
        self.let_go: set[str] = set()
        # Jobs of removed groups that were active at the time of the removal.
        self.strays: list[Job] = []
        self.holders: dict[str, AnyHolder] = {}
        self.late_holders: list[AnyHolder] = []
        self.events: dict[str, list[str]] = {}
        self.undos_added: Counter[str] = Counter()
        self.last_event = dict.fromkeys(QUEUES, "0-0")
        # Entries of the wake-up list that a foreign worker took.
        self.stolen: set[str] = set()
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

    @property
    def held(self) -> list[Job]:
        """Return the active jobs that have a worker."""
        return [job for job in self.at("active") if job.id in self.holders]

    def group_of(self, job: Job) -> Group | None:
        return self.groups.get(job.id.split("-")[0])

    # Changes of Redis and of the model.

    def create(self, definition: Definition) -> None:
        """Create a group."""
        group_id = f"g{len(self.definitions)}"
        self.definitions[group_id] = definition
        self.groups[group_id] = modelled(group_id, definition)
        self.events[group_id] = []
        assert self.do(self.store.create([planned(group_id, definition)])) == [True]
        self.look()

    def vanish(self, job: Job, booked: bool = True) -> None:
        """Record that a job was removed manually, which causes no wake-up."""
        group = self.group_of(job)
        if group and job.book == "open":
            group.unheard = True
        job.vanish(booked)
        if holder := self.holders.pop(job.id, None):
            self.late_holders.append(holder)

    def forget_history(self, queue: str) -> None:
        """Record that the event stream of a queue was deleted."""
        for job in self.jobs:
            if job.queue == queue:
                job.history.clear()
        self.last_event[queue] = "0-0"

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

    def add_foreign(self, queue: str) -> None:
        """Add a job that belongs to no group."""
        job_id = f"f{sum(job.id.startswith('f') for job in self.strays)}"
        self.do(self.queues[queue].add(job_id))
        self.strays.append(Job(job_id, queue, book="nowhere"))

    def forget(self, group_id: str) -> None:
        """Record that a group was removed with all its jobs.

        An active job stays, and one that waits in a list that is too long to search.
        """
        group = self.groups.pop(group_id, None) or self.leaving.pop(group_id)
        self.observe()
        listed = {job_id for job_id, _ in self.seen.places}
        for job in group.jobs:
            job.book = "nowhere"
            is_let_go = job.id in self.let_go and job.place != "gone"
            is_stuck = job.place == "waiting" and job.queue in self.long_queues
            if is_stuck and job.id in listed:
                job.doomed = job.unkept_if_failed = True
                self.strays.append(job)
            elif (job.place == "active" and job.locked) or is_let_go:
                self.strays.append(job)

    def discard(self, group: Group) -> None:
        """Record that a group was deleted because its owning queue was; its jobs stay."""
        ended = group.ended and group.state != "FAILED_COMPENSATION"
        assert ended, f"{group.id} is {group.state}, but it was discarded"
        assert group.queue not in self.seen.meta, f"the queue of {group.id} exists"
        self.groups.pop(group.id, None)
        self.leaving.pop(group.id, None)
        for job in group.jobs:
            job.book = "nowhere"
            self.strays.append(job)

    def note_review(self) -> None:
        """Change the model as a review of all groups changes Redis."""
        self.observe()
        for group in [*self.groups.values(), *self.leaving.values()]:
            if self.seen.groups[group.id] is None:
                self.discard(group)
                continue
            for job in group.jobs:
                if job.place == "lost" and job.id not in self.seen.hashed:
                    job.vanish()
                    if isinstance(job, Member):
                        job.maybe_started = job.maybe_started or job.starts > 0
                elif job.place == "orphaned" and (job.id, "failed") in self.seen.places:
                    job.place = "failed"

    def remove_piece(self, group_id: str) -> bool:
        """Make one call of a removal; return whether work is left."""
        call = self.ground.kits[self.budget].remove(
            self.ground.redis,
            parent=names.parent_key(self.prefix, group_id),
            now=0,
            prefix=self.prefix,
            gid=group_id,
            remembers=A_LONG_WHILE,
        )
        return bool(self.do(call))

    def settle(
        self, group_id: str, request: str = "", patient: bool = True, queue: str = ""
    ) -> bool:
        """Settle once; return whether the group was repaired."""
        grace = GRACE if patient else 0
        (settled,) = self.do(self.store.settle([group_id], request, grace, queue))
        return self.note_result(group_id, settled, request, patient)

    def settle_wakeup(self) -> None:
        """Settle the first group of the wake-up list."""
        ((entry, settled),) = self.do(self.store.wakeups.settle())
        self.note_result(names.group_of_wakeup(entry), settled)

    def note_result(
        self, group_id: str, settled: SettleResult, request: str = "", patient: bool = True
    ) -> bool:
        """Settle in the model what a call settled; return whether the group was repaired."""
        if isinstance(settled, Exception):
            raise settled
        self.observe()
        group = self.groups.get(group_id)
        assert settled is not None or group is None
        if settled is not None and group is not None:
            self.note_settled(group, request, settled.more, patient)
        self.check()
        return settled is not None and settled.repaired

    def note_settled(self, group: Group, request: str, more: bool, patient: bool = True) -> None:
        """Settle a group in the model, with the choices that the scripts made."""
        chosen = Chosen(
            undone={job.removesuffix("-undo") for job in self.undos_added},
            hashed=self.seen.hashed,
            missed=self.seen.missed,
            stuck=self.seen.stuck,
            more=more,
            long_queues=self.long_queues,
        )
        group.settle(chosen, self.budget, request, patient)

    def empty_wakeups(self) -> None:
        """Settle the groups on the wake-up list until it is empty."""
        for _ in range(100):
            if not self.seen.wakeups:
                return
            self.settle_wakeup()
        raise AssertionError(f"the wake-up list does not become empty: {self.seen.wakeups}")

    # Checks.

    def look(self, deleting: bool = False) -> None:
        """Read Redis and compare it with the model; a step may have deleted events."""
        self.deleting = deleting
        self.observe()
        self.deleting = False
        self.check()

    def observe(self) -> None:
        before = getattr(self, "seen", None)
        gone = [group_id for group_id in self.definitions if group_id not in self.groups]
        groups = [*self.groups, *self.leaving, *gone[-2:]]
        self.seen = self.do(self.looker.look(self.last_event, list(dict.fromkeys(groups))))
        self.before = before or self.seen
        for queue in self.before.streams - self.seen.streams:
            # Only the removal of the last group that used the queue deletes it.
            jobs = [job for group in self.groups.values() for job in group.jobs]
            users = {job.id for job in jobs if job.queue == queue and job.history}
            assert not users or self.deleting, f"the events of {users} were deleted"
            self.forget_history(queue)
        for queue, event_id, fields in self.seen.events:
            self.last_event[queue] = event_id
            kind = fields["event"]
            if kind.startswith("group:"):
                self.events[fields["groupId"]].append(f"{kind} {fields.get('state', '')}".strip())
            elif kind == "added" and queue.endswith(":compensation"):
                self.undos_added[fields["jobId"]] += 1
        # A removal may have stopped anywhere, and a driver may have settled the rest: the model of
        # such a group follows Redis.
        places = dict(self.seen.places)
        for group in self.leaving.values():
            for member in group.members:
                if member.undo is None and f"{member.id}-undo" in places:
                    member.undo = undo_of(member)
            for job in group.jobs:
                job.place = places.get(job.id, "gone")

    def check(self) -> None:
        assert self.seen.ghosts == [], "these jobs are in a queue, but have no hash"
        there = sorted((job.id, job.place) for job in self.jobs if job.place not in NOT_LISTED)
        same("jobs", self.seen.places, there)
        booked = [job for group in self.groups.values() for job in group.jobs]
        known = [(job_id, book) for job_id, book in self.seen.books if not self.is_leaving(job_id)]
        noted = sorted((job.id, job.book) for job in booked if job.book != "nowhere")
        same("ledger", known, noted)
        for group in self.groups.values():
            self.check_group(group)
        if not self.leaving:
            self.check_totals()
        for group_id in self.seen.groups.keys() - self.groups.keys() - self.leaving.keys():
            assert self.seen.groups[group_id] is None
        self.sound = True

    def check_totals(self) -> None:
        """Check the totals against the model; groups on the wake-up list count in no state."""
        settled = [each for each in self.groups.values() if each.id in self.seen.parked]
        totals = self.do(self.store.totals())
        counted = {state: count for state, count in totals.groups.items() if count}
        same("totals", counted, dict(Counter(group.state for group in settled)))
        same("wake-ups", totals.wakeups, len(self.seen.wakeups))

    def is_leaving(self, job_id: str) -> bool:
        return job_id.split("-")[0] in self.leaving

    def check_group(self, group: Group) -> None:
        read = self.seen.groups[group.id]
        assert read is not None
        derived, state = read.derived, read.group
        same("state", state.state, group.state)
        self.check_answer(state, derived)
        same("counts", {name: getattr(state, name) for name in group.counts}, group.counts)
        statuses = {member.id: member.status for member in group.members}
        same("statuses", {name: self.seen.statuses[name] for name in statuses}, statuses)
        same("events", self.events[group.id], group.events)
        assert (state.finished_at is not None) == group.ended
        if group.state not in {"ACTIVE", "COMPLETED"}:
            suspects = {m.id for m in group.members if m.starts or m.removed}
            assert state.failed_job_id in (suspects if group.failed_first else {""})
            assert group.failed_first or state.reason == group.reason
        assert group.state != "COMPLETED" or not group.undos, "a completed group was undone"
        for member in group.members:
            if added := self.undos_added[f"{member.id}-undo"]:
                assert added == 1, f"{member.id} was undone twice"
                # Without the hash or the events, a start cannot be ruled out.
                unknown = not member.hashed or "added" not in member.history
                started = member.entered or member.ats > 1 or unknown
                assert member.ever_completed or (member.when == "Started" and started)
        if not group.ended:
            stolen = {names.group_of_wakeup(entry) for entry in self.stolen}
            looked_at = group.id in self.seen.parked or self.seen.is_woken(group.id)
            looked_at = looked_at or group.id in stolen
            assert looked_at, f"no wake-up and no resync will settle {group.id}"

    def check_answer(self, state: GroupState, derived: str) -> None:
        """Check that the answer of get_group_state does not contradict itself."""
        assert derived == state.state or not state.ended
        done = state.completed_count == state.total_jobs
        assert derived != "COMPLETED" or done
        assert derived != "ACTIVE" or (not done and not state.failed_count)
        finished = state.undone_count + state.undo_failed_count
        assert finished <= state.undo_count

    def check_settled(self, group: Group) -> None:
        """Check that no work is left for a driver."""
        if group.all_ended:
            assert group.ended, f"all jobs of {group.id} have ended, but it is {group.state}"
        if group.state == "ACTIVE":
            assert all(member.book in {"open", "done"} for member in group.members)
            assert not any(m.place == "lost" and m.book == "open" for m in group.members)
        if group.state != "ACTIVE":
            assert not any(u.place == "lost" and u.book == "open" for u in group.undos)
        if group.all_ended and group.state != "COMPLETED":
            assert not any(member.wants_undo for member in group.members)

    def check_removed(self) -> None:
        """Check that removed groups left their tombstones and nothing else."""
        books, left = f"{self.prefix}:_jobgroups", set(self.do(self.keys()))
        tombs = {f"{books}:tomb:{group_id}" for group_id in self.definitions}
        assert {key for key in left if key.startswith(books)} - tombs <= {
            f"{books}:events",
            f"{books}:marker",
        }
        assert tombs <= left
        strays = {f"{self.prefix}:{job.queue}:{job.id}" for job in self.strays}
        jobs = {
            key for key in left if key.startswith(tuple(f"{self.prefix}:{q}:g" for q in QUEUES))
        }
        assert {key.removesuffix(":lock") for key in jobs} <= strays
        self.sound = True

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


def same(what: str, seen: object, expected: object) -> None:
    """Check that a value in Redis equals the value in the model."""
    assert seen == expected, f"{what}: {seen} should be {expected}"


# The options with which retention removes a job -> the place from which it removes the job.
UNKEPT = {"removeOnComplete": "completed", "removeOnFail": "failed"}


def planned(group_id: str, definition: Definition) -> Plan:
    """Return the plan of a definition, for Redis."""
    opts = {"attempts": 2, "backoff": A_LONG_WHILE}
    jobs = [
        {"name": f"m{n}", "queueName": member["queue"], "opts": member["opts"]}
        for n, member in enumerate(definition)
    ]
    compensation = {
        f"m{n}": {"name": f"undo-m{n}", "when": member["when"], "opts": opts}
        for n, member in enumerate(definition)
        if member["when"]
    }
    return plan_group(parse_group("saga", jobs, compensation), group_id)


def modelled(group_id: str, definition: Definition) -> Group:
    """Return the group of a definition, for the model."""
    members = [
        Member(
            f"{group_id}-{n}",
            member["queue"],
            attempts=member["opts"].get("attempts", 1),
            backoff="backoff" in member["opts"],
            unkept=frozenset(UNKEPT[opt] for opt in UNKEPT.keys() & member["opts"].keys()),
            place="delayed" if "delay" in member["opts"] else "waiting",
            when=member["when"],
        )
        for n, member in enumerate(definition)
    ]
    return Group(group_id, members)
