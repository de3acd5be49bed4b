"""A model of a saga in plain Python: no Redis, no Lua, no clock.

The first half models what stock clients do to one job, the second half how a group is settled. The
scripts may choose, for example, which members a call drops first. The model takes such a choice as
an argument and checks that it is allowed.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal

# A job that is lost or orphaned has a hash, but is in no list: 5.x destroyed the list in which it
# waited, or 6.x deleted the set in which it was after it had failed.
Place = Literal["waiting", "delayed", "active", "completed", "failed", "lost", "orphaned", "gone"]
Book = Literal["open", "done", "failed", "nowhere"]
Event = Literal["added", "active", "completed"]

# How often a job may stall before stock workers fail it.
MAX_STALLS = 1


@dataclass(eq=False)
class Job:
    """One job: its place in the queue, and its place in the ledger."""

    id: str
    queue: str
    attempts: int = 1
    backoff: bool = False
    place: Place = "waiting"
    book: Book = "open"
    starts: int = 0
    entered: int = 0  # how often a worker ran it
    ats: int = 0  # the starts that its hash counts
    tries: int = 0
    stalls: int = 0
    locked: bool = False
    suspected: bool = False  # marked as possibly stalled by the last check of its queue
    doomed: bool = False  # the next worker that takes it fails it
    sealed: bool = False  # a manual retry does not change the ledger
    unkept_if_failed: bool = False  # BullMQ removes it when it fails
    valued: bool = True  # its hash has a return value
    history: set[Event] = field(default_factory=lambda: {"added"})  # in the stream of its queue
    ever_completed: bool = False

    @property
    def finished(self) -> bool:
        return self.place in {"completed", "failed", "orphaned"}

    @property
    def pending(self) -> bool:
        return self.place in {"waiting", "delayed", "lost"}

    @property
    def hashed(self) -> bool:
        return self.place != "gone"

    def take(self) -> None:
        """Start the job in a worker."""
        self.place, self.locked = "active", True
        self.starts += 1
        self.ats += 1
        self.entered += not self.doomed
        self.history.add("active")

    def complete(self) -> None:
        """Complete the job; the ledger records it if the job was open."""
        self._leave_worker("completed")
        self.tries += 1
        self.ever_completed = self.valued = True
        self.history.add("completed")
        if self.book == "open":
            self.book = "done"

    def fail(self, finally_: bool) -> None:
        """Fail one attempt, or fail the job if it was the last attempt."""
        self.tries += 1
        if finally_ or self.tries >= self.attempts:
            self._leave_worker("gone" if self.unkept_if_failed else "failed")
            self.doomed = False
            if self.book == "open":
                self.book = "failed"
        else:
            self._leave_worker("delayed" if self.backoff else "waiting")

    def lose_worker(self) -> None:
        """Remove the lock, as when the worker dies and the lock expires."""
        self.locked = False

    def check_stall(self) -> None:
        """Check for a stall: the first check marks the job, the second returns it to its queue."""
        if self.suspected and not self.locked:
            self._leave_worker("waiting")
            self.stalls += 1
            self.doomed = self.doomed or self.stalls > MAX_STALLS
        else:
            self.suspected = True

    def promote(self) -> None:
        """Move the job from delayed to waiting."""
        self.place = "waiting"

    def retry(self, booked: bool = True) -> None:
        """Retry the job manually; the bulk retry of 5.x does not change the ledger."""
        is_in_ledger = (self.place, self.book) in {("failed", "failed"), ("completed", "done")}
        if booked and is_in_ledger and not self.sealed:
            self.book = "open"
        if self.place == "completed":
            self.valued = False
        self.place = "waiting"

    def lose_list(self) -> None:
        """Lose the list in which the job waits."""
        self.place = "lost"

    def vanish(self, booked: bool = True) -> None:
        """Remove the job; the ledger keeps its result, but loses the job if it was open.

        A client that deletes keys without BullMQ's scripts does not change the ledger.
        """
        self._leave_worker("gone")
        if booked and self.book == "open" and not self.sealed:
            self.book = "nowhere"

    def _leave_worker(self, place: Place) -> None:
        self.place = place
        self.locked = self.suspected = False


@dataclass(eq=False)
class Member(Job):
    """One member, and its undo if it has a mapping."""

    when: Literal["Completed", "Started"] | None = None
    undo: Job | None = None
    cancelled: bool = False
    removed: bool = False  # a harvest found it missing
    refused: bool = False  # the scripts recorded that it failed only because it was doomed
    noted: bool = False  # the scripts recorded that it completed before it was run again
    maybe_started: bool = False  # the scripts recorded that it may have started
    missed: bool = False  # seen active without a worker
    stuck: bool = False  # a call left it, doomed, in a list that is too long to search
    unkept: frozenset[str] = frozenset()  # places from which retention removes it

    @property
    def status(self) -> str:
        """The status that a reader of the group sees."""
        if self.cancelled:
            return "cancelled"
        if self.book == "open":
            return "active" if self.place == "active" else "pending"
        return "completed" if self.book == "done" else "failed"

    @property
    def runs_again(self) -> bool:
        """Whether somebody runs it again after it completed, and the ledger does not show it."""
        return self.book == "done" and self.hashed and not self.finished and not self.stuck

    @property
    def wants_undo(self) -> bool:
        if self.when is None or self.undo is not None or self.book == "open":
            return False
        if self.book == "done" or self.noted:
            return True
        failed = self.book == "failed" and not self.removed
        ran = self.maybe_started or (failed and not self.refused and not self.shows_refusal)
        return self.when == "Started" and ran

    @property
    def shows_refusal(self) -> bool:
        """Whether its hash shows that it failed without a run: a doomed member counts a start."""
        return self.place == "failed" and self.ats == 1 and not self.entered

    def fail(self, finally_: bool) -> None:
        self.refused = self.refused and self.book != "open"
        super().fail(finally_)


@dataclass(frozen=True)
class Chosen:
    """The choices of the scripts in one call of settle."""

    undone: AbstractSet[str]
    hashed: AbstractSet[str]  # members that have a hash after the call
    missed: AbstractSet[str]
    stuck: AbstractSet[str]  # members that a call left in a list that is too long to search
    more: bool  # whether work is left for another call
    # Queues with a list that is too long to search.
    long_queues: AbstractSet[str] = frozenset()


@dataclass(eq=False)
class Group:
    """One saga."""

    id: str
    members: list[Member]
    state: str = "ACTIVE"
    events: list[str] = field(default_factory=list)
    # Whether a change caused no wake-up, so that only a resync finds it.
    unheard: bool = False
    # Whether a failed member gave it up; if not, `reason` is the cause.
    failed_first: bool = False
    reason: str = ""
    retention_applied: bool = False
    final_counts: dict[str, int] = field(default_factory=dict)

    @property
    def undos(self) -> list[Job]:
        return [member.undo for member in self.members if member.undo]

    @property
    def jobs(self) -> list[Job]:
        return [*self.members, *self.undos]

    @property
    def queue(self) -> str:
        """The owning queue."""
        return self.members[0].queue

    @property
    def ended(self) -> bool:
        return self.state not in {"ACTIVE", "COMPENSATING"}

    @property
    def all_ended(self) -> bool:
        """Whether all members and undos have finished."""
        return all(job.book != "open" for job in self.jobs) and not self.reruns

    @property
    def reruns(self) -> list[Member]:
        """The completed members that somebody runs again and that a worker has taken."""
        return [m for m in self.members if m.runs_again and m.place == "active"]

    @property
    def is_waiting_to_end(self) -> bool:
        """Whether it is COMPENSATING with open members; drivers settle such a group repeatedly."""
        is_open = any(member.book == "open" for member in self.members)
        return self.state == "COMPENSATING" and bool(is_open or self.reruns)

    @property
    def counts(self) -> dict[str, int]:
        """The counts that a reader sees, even while no driver runs."""
        return self.final_counts if self.ended else self.current_counts

    @property
    def current_counts(self) -> dict[str, int]:
        """The counts that the ledger shows."""
        statuses = [member.status for member in self.members]
        undos = [undo.book for undo in self.undos]
        return {
            "total_jobs": len(statuses),
            "completed_count": statuses.count("completed"),
            "failed_count": statuses.count("failed"),
            "cancelled_count": statuses.count("cancelled"),
            "undo_count": len(undos),
            "undone_count": undos.count("done"),
            "undo_failed_count": undos.count("failed") + undos.count("nowhere"),
        }

    def settle(self, chosen: Chosen, budget: int, request: str = "", patient: bool = True) -> None:
        """Settle with one call, which may drop and undo at most `budget` members."""
        self._harvest()
        failing = self.state == "ACTIVE" and not self._all_done and (self._failed or bool(request))
        given_up = failing or self.state in {"COMPENSATING", "FAILED", "FAILED_COMPENSATION"}
        self._mark(given_up)
        if failing or self.state == "COMPENSATING":
            self._look_for_workers(patient)
            self._drop(chosen, budget)
        if given_up:
            wanting = [m for m in self.members if m.wants_undo and m not in self.reruns]
            for member in _pick(wanting, chosen.undone, budget, chosen.more):
                member.undo = undo_of(member)
        for undo in self.undos:
            _correct(undo)
        self._decide(failing, request, chosen.more)
        if self.ended and not chosen.more and not self.retention_applied:
            self.retention_applied = True
            for member in self.members:
                if member.place in member.unkept:
                    member.place = "gone"
        self.unheard = False
        self.final_counts = self.current_counts

    @property
    def _all_done(self) -> bool:
        return all(member.book == "done" for member in self.members)

    @property
    def _failed(self) -> bool:
        return any(member.book == "failed" for member in self.members)

    def _harvest(self) -> None:
        for member in self.members:
            if member.cancelled:
                continue
            if _correct(member):
                completed = member.noted or "completed" in member.history
                started = "active" in member.history or "added" not in member.history
                member.removed = not completed
                member.book = "done" if completed else "failed"
                member.maybe_started = member.maybe_started or (started and not completed)
            elif member.book in {"open", "failed"} and member.hashed and not member.valued:
                member.noted = True
            member.refused = member.refused or (member.book == "failed" and member.shows_refusal)

    def _mark(self, given_up: bool) -> None:
        for member in self.members:
            if member.hashed and member.book != "nowhere":
                member.sealed = member.sealed or member.book == "done"
                member.doomed = member.doomed or given_up
                if given_up and member.book == "done":
                    member.unkept_if_failed = True

    def _look_for_workers(self, patient: bool) -> None:
        """Give up members whose worker is still missing after the grace period."""
        for member in self.members:
            if member.place == "active" and (member.book == "open" or member.runs_again):
                if member.missed and not member.locked and not patient:
                    was_open = member.book == "open"
                    member.vanish(booked=False)
                    member.book = "failed" if was_open else "done"
                else:
                    member.missed = not member.locked

    def _drop(self, chosen: Chosen, budget: int) -> None:
        """Drop pending members; one in a list that is too long to search stays there, doomed."""
        pending = [m for m in self.members if m.pending and (m.book == "open" or m.runs_again)]
        stuck = {m.id for m in pending if m.id in chosen.stuck}
        assert all(m.queue in chosen.long_queues for m in pending if m.id in stuck)
        touched = {m.id for m in pending if m.id not in chosen.hashed} | stuck
        for member in _pick(pending, touched, budget, chosen.more):
            was_open = member.book == "open"
            if member.id in stuck:
                member.sealed = member.unkept_if_failed = member.stuck = True
            else:
                member.vanish(booked=False)
            if was_open:
                member.book = "done" if member.noted else "nowhere"
                member.cancelled = not member.noted
                member.maybe_started = member.maybe_started or member.starts > 0

    def _decide(self, failing: bool, request: str, more: bool) -> None:
        if self.state == "ACTIVE" and self._all_done and not failing:
            self._enter("COMPLETED", "group:completed")
        elif failing:
            self.failed_first, self.reason = self._failed, request
            effects = self.undos or any(m.book in {"done", "open"} for m in self.members)
            if effects:
                self._enter("COMPENSATING", "group:compensating")
            else:
                self._enter("FAILED", "group:failed FAILED")
        failed = any(undo.book == "failed" for undo in self.undos)
        undone = not any(undo.book == "open" for undo in self.undos) and not any(
            member.wants_undo for member in self.members
        )
        if self.state == "COMPENSATING" and not more and self.all_ended and undone:
            end = "FAILED_COMPENSATION" if failed else "FAILED"
            self._enter(end, f"group:failed {end}")
        elif self.state == "FAILED" and undone and failed:
            self._enter("FAILED_COMPENSATION", "group:failed FAILED_COMPENSATION")

    def _enter(self, state: str, event: str) -> None:
        self.state = state
        self.events.append(event)


def undo_of(member: Member) -> Job:
    """Return the undo of a member: two attempts, the second after a long delay."""
    return Job(f"{member.id}-undo", f"{member.queue}:compensation", attempts=2, backoff=True)


def _correct(job: Job) -> bool:
    """Correct the ledger as a harvest does; return whether the job was missing."""
    if job.book == "failed" and job.hashed and not job.finished:
        job.book = "open"
    elif job.book == "failed" and job.place == "completed":
        job.book = "done"
    is_missing = job.book == "nowhere" or (job.book == "open" and not job.hashed)
    if is_missing:
        job.book = "failed"
    return is_missing


def _pick(
    candidates: Sequence[Member], touched: AbstractSet[str], budget: int, more: bool
) -> Sequence[Member]:
    """Return the candidates that a call changed: all, if it reports no work left."""
    picked = [job for job in candidates if job.id in touched]
    names = f"{[job.id for job in picked]} of {[job.id for job in candidates]}"
    assert len(picked) <= budget, f"a call exceeded its budget: it changed {names}"
    assert more or len(picked) == len(candidates), f"a call left work: it changed {names}"
    return picked
