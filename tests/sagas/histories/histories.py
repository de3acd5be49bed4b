"""Random histories: steps of stock clients, people, callers and drivers on the same groups.

No rule has a precondition: if the choice of rules depended on what Redis did, a history could not
be repeated. A step that does not apply does nothing.
"""

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from jobgroup.errors import GroupExistsError, GroupRemovedError, InvalidGroupStateError
from jobgroup.model import names
from jobgroup.resync import Resync
from tests.sagas.histories.ground import BUDGETS, QUEUES, Ground
from tests.sagas.histories.instant import run
from tests.sagas.histories.model import Job, Member
from tests.sagas.histories.node_queue import NodeError
from tests.sagas.histories.world import A_LONG_WHILE, NOT_LISTED, Definition, World, planned

T = TypeVar("T")

SETTINGS = settings(
    stateful_step_count=50,
    phases=(Phase.generate, Phase.shrink),
    deadline=None,
    derandomize=False,
    database=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)

definitions = st.lists(
    st.fixed_dictionaries(
        {
            "queue": st.sampled_from(["a", "b"]),
            "opts": st.sampled_from(
                [
                    {},
                    {"attempts": 2},
                    {"attempts": 2, "backoff": A_LONG_WHILE},
                    {"priority": 1},
                    {"delay": A_LONG_WHILE},
                    {"removeOnComplete": True},
                    {"removeOnFail": 0},
                ]
            ),
            "when": st.sampled_from(["Completed", "Started", None]),
        }
    ),
    min_size=1,
    max_size=4,
)
queues = st.sampled_from(QUEUES)
# The index of the job or group that a step uses.
which = st.integers(0, 7)


def pick(candidates: Iterable[T], n: int) -> T | None:
    found = list(candidates)
    return found[n % len(found)] if found else None


class History(RuleBasedStateMachine):
    """One history of one world; every step ends with a comparison of Redis and the model."""

    ground: Ground
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    @initialize(budget=st.sampled_from(BUDGETS), definition=definitions)
    def begin(self, budget: int, definition: Definition) -> None:
        self.world = World(self.ground, budget)
        self.world.create(definition)

    # Steps of workers.

    @rule(queue=queues)
    def take(self, queue: str) -> None:
        """Take a job; a worker fails a doomed one at once and does not run it."""
        self.taken += 1
        waiting = {job.id: job for job in self.world.can_be_taken(queue)}
        holder = self.world.do(self.world.queues[queue].take(f"token-{self.taken}"))
        assert (holder is None) == (not waiting)
        if holder is None:
            self.world.look()
            return
        note(f"took {holder.job.id}")
        job = waiting[holder.job.id]
        job.take()
        self.world.holders[job.id] = holder
        self.world.look()
        assert bool(holder.job.deferredFailure) == job.doomed
        if job.doomed:
            self.report_failure(job, finally_=True, reason=str(holder.job.deferredFailure))

    def held(self, n: int) -> Job | None:
        """Return an active job; start one if there is none."""
        if not self.world.held:
            if not self.world.at("waiting"):
                self.come_due(n)
            if not self.world.at("waiting"):
                self.create(self.world.definitions[self.any_id(n)])
            for job in self.world.at("waiting")[:1]:
                self.take(job.queue)
        return pick(self.world.held, n)

    @rule(n=which)
    def complete(self, n: int) -> None:
        job = self.held(n)
        if job is None:
            return
        self.world.do(self.world.holders.pop(job.id).complete({"n": n}))
        self.note_outcome(job)
        job.complete()
        self.world.look()

    def note_outcome(self, job: Job) -> None:
        """Record that the outcome of a member that somebody runs again causes no wake-up."""
        if isinstance(job, Member) and job.runs_again and (group := self.world.group_of(job)):
            group.unheard = True

    @rule(jobs=st.integers(1, 4))
    def work(self, jobs: int) -> None:
        """Complete several jobs in a row."""
        for _ in range(jobs):
            self.complete(0)

    @rule(n=which, finally_=st.booleans())
    def fail(self, n: int, finally_: bool) -> None:
        if job := self.held(n):
            self.report_failure(job, finally_)

    def report_failure(self, job: Job, finally_: bool, reason: str = "broken") -> None:
        self.world.do(self.world.holders.pop(job.id).fail(reason, finally_))
        self.note_outcome(job)
        job.fail(finally_)
        self.world.look()

    @rule(n=which)
    def die(self, n: int) -> None:
        if job := self.held(n):
            self.world.do(self.world.queues[job.queue].lose_worker(job.id))
            job.lose_worker()
            self.world.late_holders.append(self.world.holders.pop(job.id))
            self.world.look()

    @rule(n=which)
    def report_too_late(self, n: int) -> None:
        """Report the result of a job whose lock has expired: BullMQ refuses it."""
        if holder := pick(self.world.late_holders, n):
            with pytest.raises((TypeError, NodeError), match=r"[Mm]issing|mismatch"):
                self.world.do(holder.complete())
            self.world.look()

    @rule(queue=queues)
    def check_stalls(self, queue: str) -> None:
        self.world.do(self.world.queues[queue].check_stalls())
        for job in self.world.at("active", queue=queue):
            job.check_stall()
        self.world.look()

    @rule(n=which)
    def come_due(self, n: int) -> None:
        if job := pick(self.world.at("delayed"), n):
            self.world.do(self.world.queues[job.queue].promote(job.id))
            job.promote()
            self.world.look()

    # Steps of people and of retention.

    @rule(n=which)
    def remove_job(self, n: int) -> None:
        if job := pick(self.world.at("waiting", "delayed", "active", "completed", "failed"), n):
            removed = self.world.do(self.world.queues[job.queue].remove(job.id))
            assert removed == (not job.locked)
            if removed:
                self.world.vanish(job)
            self.world.look()

    @rule(queue=queues)
    def drain(self, queue: str) -> None:
        self.world.do(self.world.queues[queue].drain())
        for job in self.world.at("waiting", "delayed", queue=queue):
            self.world.vanish(job)
        self.world.look()

    @rule(queue=queues, place=st.sampled_from(["completed", "failed"]))
    def sweep(self, queue: str, place: str) -> None:
        self.world.do(self.world.queues[queue].sweep(place))
        for job in self.world.at(place, queue=queue):
            job.vanish()
        self.world.look()

    @rule(n=which, reset=st.booleans())
    def retry(self, n: int, reset: bool) -> None:
        if job := pick(self.world.at("completed", "failed"), n):
            if self.world.do(self.world.queues[job.queue].retry(job.id, job.place, reset)):
                job.tries = job.ats = 0
            job.retry()
            self.world.look()

    @rule(queue=queues, place=st.sampled_from(["completed", "failed"]), booked=st.booleans())
    def retry_all(self, queue: str, place: str, booked: bool) -> None:
        """Retry in bulk; 5.x does not change the ledger, so the result causes no wake-up."""
        booked = self.world.do(self.world.queues[queue].retry_all(place, booked))
        for job in self.world.at(place, queue=queue):
            job.retry(booked)
            if not booked and (group := self.world.group_of(job)):
                group.unheard = True
        self.world.look()

    @rule(queue=queues, paused=st.booleans(), moves_list=st.booleans())
    def pause(self, queue: str, paused: bool, moves_list: bool) -> None:
        """Pause or resume a queue; 5.x moves one list to the other, and destroys the other."""
        if self.world.do(self.world.queues[queue].pause(paused, moves_list)):
            self.note_moved_list(queue, paused)
        self.world.look()

    def note_moved_list(self, queue: str, paused: bool) -> None:
        """Record that 5.x moved the list `wait` to `paused`, or back, and destroyed the other."""
        world = self.world
        wait, aside = world.seen.lists[queue], world.seen.aside[queue]
        moved, destroyed = (wait, aside) if paused else (aside, wait)
        lost = [job for job in world.at("waiting", queue=queue) if moved and job.id in destroyed]
        assert world.ground.mixes_versions or not lost, (
            f"5.x destroyed the list of {[j.id for j in lost]}"
        )
        for job in lost:
            job.lose_list()
            if group := world.group_of(job):
                group.unheard = True

    @rule(queue=queues)
    def obliterate(self, queue: str) -> None:
        """Delete a queue with all its jobs and its events."""
        world = self.world
        if world.do(world.queues[queue].obliterate()):
            self.note_moved_list(queue, paused=True)
        for job in world.jobs:
            if job.queue == queue and job.place not in NOT_LISTED:
                world.vanish(job)
        world.look(deleting=True)

    @rule()
    def delete_keys(self) -> None:
        """Delete all keys of a queue that owns no group, and of its queue of undos."""
        world = self.world
        if any(each.queue == "b" for each in [*world.groups.values(), *world.leaving.values()]):
            return
        world.do(world.queues["b"].delete_keys())
        for job in world.jobs:
            if job.queue in {"b", "b:compensation"} and job.hashed:
                world.vanish(job, booked=False)
        world.look(deleting=True)

    @rule(queue=queues)
    def remove_orphans(self, queue: str) -> None:
        """Delete jobs that are in no list; the set of failed undos looks like a key of a job."""
        world = self.world
        removed = world.do(world.queues[queue].remove_orphans())
        for job in world.jobs if removed else []:
            if job.queue == queue and job.place in {"lost", "orphaned"}:
                world.vanish(job, booked=False)
            elif job.queue == f"{queue}:compensation" and job.place == "failed":
                job.place = "orphaned"
        world.look()

    @rule()
    def steal_wakeup(self) -> None:
        """Take an entry of the wake-up list, as a worker on the pseudo queue does."""
        world = self.world
        if not world.seen.wakeups:
            return
        self.taken += 1
        entry = world.do(world.ground.ledger.steal(f"token-{self.taken}"))
        world.stolen.add(entry)
        if group := world.groups.get(names.group_of_wakeup(entry)):
            group.unheard = True
        world.look()

    @rule(queue=queues, jobs=st.integers(1, 3))
    def add_foreign(self, queue: str, jobs: int) -> None:
        """Add jobs that belong to no group."""
        for _ in range(jobs):
            if len(self.world.strays) < 12:
                self.world.add_foreign(queue)
        self.world.look()

    # Steps of callers of the API.

    @rule(definition=definitions)
    def create(self, definition: Definition) -> None:
        groups = self.world.groups.values()
        if len(groups) < 4 and sum(not group.ended for group in groups) < 2:
            self.world.create(definition)

    @rule(n=which, same=st.booleans())
    def create_again(self, n: int, same: bool) -> None:
        """Create a group again: Redis refuses it or does not change it."""
        group_id = self.any_id(n)
        definition = self.world.definitions[group_id]
        again = definition if same else [*definition, {"queue": "a", "opts": {}, "when": None}]
        (answer,) = self.world.do(self.world.store.create([planned(group_id, again)]))
        if group_id not in self.world.groups:
            assert isinstance(answer, GroupRemovedError)
        elif same:
            assert answer is False
        else:
            assert isinstance(answer, GroupExistsError)
        self.world.look()

    @rule(n=which)
    def cancel(self, n: int) -> None:
        group = pick(self.world.groups.values(), n)
        if group is None:
            return
        was_active = group.state == "ACTIVE"
        entries = self.world.seen.wakeups.count(group.id)
        refused = self.is_refused(self.world.store.cancel(group.id))
        self.world.observe()
        more = self.world.seen.wakeups.count(group.id) > entries
        self.world.note_settled(group, "cancelled", more)
        self.world.check()
        assert refused == (not was_active or group.state == "COMPLETED")

    @rule(n=which)
    def remove_group(self, n: int) -> None:
        group = pick(self.world.groups.values(), n)
        if group is None:
            return
        refused = self.is_refused(self.world.store.remove(group.id))
        assert refused == (not group.ended)
        if not refused:
            self.world.forget(group.id)
        self.world.look()

    @rule(n=which)
    def begin_removal(self, n: int) -> None:
        """Make only the first call of a removal."""
        world = self.world
        group = pick((group for group in world.groups.values() if group.ended), n)
        if group is None:
            return
        held = {job.id for job in group.jobs if job.locked}
        left = world.remove_piece(group.id)
        if left:
            world.let_go |= held
            world.leaving[group.id] = world.groups.pop(group.id)
        else:
            world.forget(group.id)
        world.look()

    @rule()
    def finish_removal(self) -> None:
        for group_id in list(self.world.leaving):
            self.world.do(self.world.store.remove(group_id))
            self.world.observe()  # active jobs may have ended since the removal began
            self.world.forget(group_id)
            self.world.look()

    def any_id(self, n: int) -> str:
        """Return the id of a group that exists or existed."""
        ids = list(self.world.definitions)
        return ids[n % len(ids)]

    def is_refused(self, work: Coroutine[Any, Any, Any]) -> bool:
        try:
            self.world.do(work)
        except InvalidGroupStateError:
            return True
        return False

    # Steps of drivers.

    @rule(n=which)
    def settle(self, n: int) -> None:
        """Settle once, as a driver that then dies, or as a second driver."""
        self.world.settle(self.any_id(n))

    @rule()
    def settle_wakeup(self) -> None:
        """Settle the first group of the wake-up list."""
        if self.world.seen.wakeups:
            self.world.settle_wakeup()

    @rule(n=which)
    def give_up_workers(self, n: int) -> None:
        """Settle after the grace period for missing workers."""
        self.world.settle(self.any_id(n), patient=False)

    @rule(n=which)
    def run_out_of_time(self, n: int) -> None:
        """Settle a group whose deadline has passed."""
        self.world.settle(self.any_id(n), "DeadlineExceeded")

    @rule()
    def drive(self) -> None:
        self.world.empty_wakeups()
        for group in self.world.groups.values():
            if not group.unheard:
                self.world.check_settled(group)

    @rule()
    def resync(self) -> None:
        """Review all groups; none needs a repair unless a wake-up was missed."""
        world = self.world

        world.do(world.store.reviews.reclaim())
        world.stolen.clear()
        world.look()

        async def settle(group_ids: list[str], queue: str = "") -> int:
            world.note_review()
            for group_id in group_ids:
                group = world.groups.get(group_id)
                excused = group is None or group.unheard or group.is_waiting_to_end
                repaired = world.settle(group_id, queue=queue)
                assert excused or not repaired, f"{group_id} got no wake-up"
            return 0

        world.empty_wakeups()
        waiting = [group.id for group in world.groups.values() if group.is_waiting_to_end]
        review = Resync(world.store, settle, lambda: waiting, lambda _: None)
        world.do(review.review_everything())
        world.note_review()
        world.check()
        world.empty_wakeups()
        for group in world.groups.values():
            world.check_settled(group)
            orphaned = [job.id for job in group.undos if job.place == "orphaned"]
            assert group.state == "ACTIVE" or not orphaned, f"{orphaned} are in no set"

    # After the last step: workers run all jobs, then every group must end and be removable.

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if self.world.sound:
                self.bring_to_an_end()
        finally:
            run(self.world.clear())

    def bring_to_an_end(self) -> None:
        world = self.world
        for _ in range(10):
            for queue in QUEUES:
                self.pause(queue, paused=False, moves_list=False)
            self.resync()
            if all(group.ended for group in world.groups.values()):
                break
            self.run_everything()
        for group in list(world.groups.values()):
            assert group.ended, f"{group.id} did not end: it is still {group.state}"
            self.remove_group(0)
        self.finish_removal()
        world.check_removed()

    def run_everything(self) -> None:
        world = self.world
        for queue in QUEUES:
            if world.at("active", queue=queue):
                self.check_stalls(queue)
                self.check_stalls(queue)
        while world.at("delayed"):
            self.come_due(0)
        for queue in QUEUES:
            while world.can_be_taken(queue):
                self.take(queue)
        while world.held:
            self.complete(0)


def run_histories(ground_: Ground, settings_: settings) -> None:
    """Run the number of histories in the settings; raise the first failure."""

    class Here(History):
        ground = ground_

    run_state_machine_as_test(Here, settings=settings_)
