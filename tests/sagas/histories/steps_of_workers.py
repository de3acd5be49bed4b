"""Steps of stock workers."""

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.sagas.histories.job_model import Job, Member
from tests.sagas.histories.node_queue import NodeError
from tests.sagas.histories.steps import pick, queues, which
from tests.sagas.histories.steps_of_callers import CallerSteps


class WorkerSteps(CallerSteps):
    """Workers take jobs and finish them, or die."""

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
        if self.world.is_leaving(job.id):
            job.doomed = bool(holder.job.deferredFailure)  # a driver may have settled its group
        assert bool(holder.job.deferredFailure) == job.doomed
        if job.doomed:
            self.report_failure(job, finally_=True, reason=str(holder.job.deferredFailure))

    @rule(queue=queues, jobs=st.integers(2, 4))
    def take_several(self, queue: str, jobs: int) -> None:
        for _ in range(jobs):
            self.take(queue)

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
