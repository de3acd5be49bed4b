"""A world of sagas in Redis and in the model; both are compared after every step.

Stock BullMQ code (stock_queue.py, node_queue.py), the scripts and the store change Redis. A step
makes the same change in the model (job_model.py, group_model.py), and `check` compares both.
"""

from collections.abc import Iterable

from jobgroup.model import names
from jobgroup.model.clock import GRACE
from jobgroup.store.replies import SettleResult
from tests.sagas.histories.checks import Checks
from tests.sagas.histories.definitions import A_LONG_WHILE, Definition, modelled, planned
from tests.sagas.histories.group_model import Chosen, Group
from tests.sagas.histories.job_model import Job, Member


class World(Checks):
    """Changes of Redis and of the model."""

    def create(self, definition: Definition) -> None:
        """Create a group."""
        group_id = f"g{len(self.definitions)}"
        self.definitions[group_id] = definition
        self.groups[group_id] = modelled(group_id, definition)
        self.events[group_id] = []
        assert self.do(self.store.create([planned(group_id, definition)])) == [True]
        self.look()
        self.check_lists()

    def look(self, deleting: bool = False) -> None:
        super().look(deleting)
        # A worker of 5.x puts groups there while the pseudo queue is paused.
        self.miss_wakeups(self.seen.aside_wakeups)

    def vanish(self, job: Job, booked: bool = True) -> None:
        """Record that a job was removed manually, which causes no wake-up."""
        group = self.group_of(job)
        if group and (job.book == "open" or (isinstance(job, Member) and job.runs_again)):
            group.unheard = True
        job.vanish(booked)
        if holder := self.holders.pop(job.id, None):
            self.late_holders.append(holder)

    def lose_list(self, job: Job) -> None:
        """Record that the list in which a job waits was destroyed."""
        job.lose_list()
        if group := self.group_of(job):
            group.unheard = True

    def miss_wakeups(self, entries: Iterable[str]) -> None:
        """Record that a driver does not see these entries of the wake-up list."""
        for group in self.of_wakeups(entries):
            group.unheard = True

    def lose_wakeups(self, entries: Iterable[str]) -> None:
        """Record that these entries of the wake-up list are gone."""
        for group in self.of_wakeups(entries):
            group.unheard = group.unwoken = True

    def of_wakeups(self, entries: Iterable[str]) -> list[Group]:
        ids = set(map(names.group_of_wakeup, entries))
        return [group for group in self.groups.values() if group.id in ids]

    def detach(self, member: Member) -> None:
        """Record that a member was removed from its parent, which causes no wake-up."""
        member.detach()
        self.groups[member.id.split("-")[0]].unheard = True

    def hint(self, job: Job) -> None:
        """Record that an event names a job which was removed or retried."""
        if group := self.group_of(job):
            self.hinted[job.queue].add(group.id)

    def add_foreign(self, queue: str, job_id: str = "") -> None:
        """Add a job that belongs to no group."""
        job_id = job_id or f"f{sum(job.id.startswith('f') for job in self.strays)}"
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
            if isinstance(job, Member) and job.unlisted and job.hashed:
                self.strays.append(job)
            elif is_stuck and job.id in listed:
                job.doomed = job.unkept_if_failed = True
                self.strays.append(job)
            elif (job.place == "active" and job.locked) or is_let_go:
                self.strays.append(job)

    def discard(self, group: Group) -> None:
        """Record that a group was deleted because its owning queue was; its jobs stay."""
        ended = group.ended and (group.hashless or group.state != "FAILED_COMPENSATION")
        assert ended, f"{group.id} is {group.state}, but it was discarded"
        exists = group.queue in self.seen.exists and not group.hashless
        assert not exists, f"the queue of {group.id} exists"
        self.let_go_jobs(group)

    def let_go_jobs(self, group: Group) -> None:
        """Record that a group does not exist any more, and that its jobs do."""
        self.groups.pop(group.id, None)
        self.leaving.pop(group.id, None)
        for job in group.jobs:
            job.book = "nowhere"
            self.strays.append(job)

    def note_review(self) -> None:
        """Change the model as a review of all groups changes Redis."""
        self.observe()
        for group in [*self.groups.values(), *self.leaving.values()]:
            if group.hashless and group.id not in self.seen.parents:
                self.discard(group)
            if group.broken:
                continue
            if self.seen.groups[group.id] is None:
                self.discard(group)
                continue
            for job in group.jobs:
                if isinstance(job, Member) and job.unlisted:
                    continue
                if job.place == "lost" and job.id not in self.seen.hashed:
                    job.vanish()
                    if isinstance(job, Member):
                        job.maybe_started = job.maybe_started or job.starts > 0
                elif job.place == "orphaned" and (job.id, "failed") in self.seen.places:
                    job.place = "failed"

    def remove_piece(self, group_id: str) -> bool:
        """Make one call of a removal; return whether work is left."""
        kit = self.ground.kits[self.budget]
        call = kit.remove(
            kit.store.redis,
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
        assert settled is not None or group is None or group.broken
        if settled is None and group is not None and group.is_lost and not group.ended:
            self.lost.add(group.id)
            self.let_go_jobs(group)
        if settled is not None and group is not None:
            self.note_settled(group, request, settled.more, patient)
            self.check_lists()
        self.check()
        return settled is not None and settled.repaired

    def note_request(self, group: Group) -> None:
        """Settle a group in the model after a request of a person, which settles it, too."""
        self.observe()
        self.note_settled(group, "", more=self.seen.is_woken(group.id))
        self.check_lists()
        self.check()

    def note_settled(self, group: Group, request: str, more: bool, patient: bool = True) -> None:
        """Settle a group in the model, with the choices that the scripts made."""
        # An undo whose mapping was lost is only in the ledger.
        undos = {*self.undos_added, *(job_id for job_id, _ in self.seen.books)}
        chosen = Chosen(
            undone={job.removesuffix("-undo") for job in undos if job.endswith("-undo")},
            hashed=self.seen.hashed,
            missed=self.seen.missed,
            stuck=self.seen.stuck,
            retrying=self.seen.retrying,
            replaced={job.id for job in self.strays if job.hashed},
            more=more,
            long_queues=self.long_queues,
            ends_blocked=self.ends_blocked,
        )
        group.settle(chosen, self.budget, request, patient)

    def empty_wakeups(self) -> None:
        """Settle the groups on the wake-up list until it is empty."""
        for _ in range(100):
            if not self.seen.wakeups:
                return
            self.settle_wakeup()
        raise AssertionError(f"the wake-up list does not become empty: {self.seen.wakeups}")
