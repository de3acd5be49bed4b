"""A model of a saga in plain Python: no Redis, no Lua, no clock.

The first half models what stock clients do to one job, the second half how a group is settled. The
scripts may choose, for example, which members a call drops first. The model takes such a choice as
an argument and checks that it is allowed.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal

Place = Literal["waiting", "delayed", "active", "completed", "failed", "gone"]
Book = Literal["open", "done", "failed", "nowhere"]

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
    tries: int = 0
    stalls: int = 0
    locked: bool = False
    suspected: bool = False  # marked as possibly stalled by the last check of its queue
    doomed: bool = False  # stalled too often: the next worker fails it
    ever_completed: bool = False

    @property
    def finished(self) -> bool:
        return self.place in {"completed", "failed"}

    @property
    def pending(self) -> bool:
        return self.place in {"waiting", "delayed"}

    def take(self) -> None:
        """Start the job in a worker."""
        self.place, self.locked = "active", True
        self.starts += 1

    def complete(self) -> None:
        """Complete the job; the ledger records it if the job was open."""
        self._leave_worker("completed")
        self.tries += 1
        self.ever_completed = True
        if self.book == "open":
            self.book = "done"

    def fail(self, finally_: bool) -> None:
        """Fail one attempt, or fail the job if it was the last attempt."""
        self.tries += 1
        if finally_ or self.tries >= self.attempts:
            self._leave_worker("failed")
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
        if booked and (self.place, self.book) in {("failed", "failed"), ("completed", "done")}:
            self.book = "open"
        self.place = "waiting"

    def vanish(self) -> None:
        """Remove the job; the ledger keeps its result, but loses the job if it was open."""
        self._leave_worker("gone")
        if self.book == "open":
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
    removed: bool = False  # a harvest found it in no part of the ledger
    missed: bool = False  # seen active without a worker
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
    def wants_undo(self) -> bool:
        if self.when is None or self.undo is not None:
            return False
        if self.book == "done":
            return True
        ran = (self.cancelled and self.starts > 0) or (self.book == "failed" and not self.removed)
        return self.when == "Started" and ran


@dataclass(frozen=True)
class Chosen:
    """The choices of the scripts in one call of settle."""

    cancelled: AbstractSet[str]
    undone: AbstractSet[str]
    given_up: AbstractSet[str]  # and members that are missing for another reason
    missed: AbstractSet[str]
    more: bool  # whether work is left for another call


@dataclass(eq=False)
class Group:
    """One saga."""

    id: str
    members: list[Member]
    state: str = "ACTIVE"
    events: list[str] = field(default_factory=list)
    # Whether a change caused no wake-up, so that only a resync finds it.
    unheard: bool = False
    # Whether 5.x retried jobs without changing the ledger, so that their results cause no wake-up.
    deaf: bool = False
    # Whether a failed member gave it up; if not, `reason` is the cause.
    failed_first: bool = False
    reason: str = ""
    retention_applied: bool = False

    @property
    def undos(self) -> list[Job]:
        return [member.undo for member in self.members if member.undo]

    @property
    def jobs(self) -> list[Job]:
        return [*self.members, *self.undos]

    @property
    def ended(self) -> bool:
        return self.state not in {"ACTIVE", "COMPENSATING"}

    @property
    def all_ended(self) -> bool:
        """Whether all members and undos have finished."""
        return all(job.book != "open" for job in self.jobs)

    @property
    def is_waiting_to_end(self) -> bool:
        """Whether it is COMPENSATING with open members; drivers settle such a group repeatedly."""
        return self.state == "COMPENSATING" and any(m.book == "open" for m in self.members)

    @property
    def counts(self) -> dict[str, int]:
        """The counts that a reader sees, even while no driver runs."""
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
        undoing = failing or self.state in {"COMPENSATING", "FAILED", "FAILED_COMPENSATION"}
        dropped: Sequence[Member] = ()
        made: Sequence[Member] = ()
        if failing or self.state == "COMPENSATING":
            self._look_for_workers(chosen, patient)
            pending = [job for job in self.members if job.book == "open" and job.pending]
            dropped = _pick(pending, chosen.cancelled, budget, chosen.more)
            for member in dropped:
                member.cancelled, member.place, member.book = True, "gone", "nowhere"
        if undoing:
            wanting = [member for member in self.members if member.wants_undo]
            made = _pick(wanting, chosen.undone, budget, chosen.more)
            for member in made:
                member.undo = undo_of(member)
        for undo in self.undos:
            _note_lost(undo)
        self._decide(failing, request, chosen.more)
        if self.ended and not chosen.more and not self.retention_applied:
            self.retention_applied = True
            for member in self.members:
                if member.place in member.unkept:
                    member.place = "gone"
        self.unheard = False

    @property
    def _all_done(self) -> bool:
        return all(member.book == "done" for member in self.members)

    @property
    def _failed(self) -> bool:
        return any(member.book == "failed" for member in self.members)

    def _harvest(self) -> None:
        for member in self.members:
            if not member.cancelled and _note_lost(member):
                member.removed = True

    def _look_for_workers(self, chosen: Chosen, patient: bool) -> None:
        """Give up members whose worker is still missing after the grace period."""
        for member in self.members:
            if member.book == "open" and member.place == "active":
                if member.missed and not member.locked and not patient:
                    if not chosen.more or member.id in chosen.given_up:
                        member.vanish()
                        member.book = "failed"
                elif chosen.more:
                    # The call may have stopped before this member.
                    member.missed = member.id in chosen.missed
                else:
                    member.missed = not member.locked

    def _decide(self, failing: bool, request: str, more: bool) -> None:
        if self.state == "ACTIVE" and self._all_done:
            self._enter("COMPLETED", "group:completed")
        elif failing:
            self.failed_first, self.reason = self._failed, request
            effects = self.undos or any(m.book in {"done", "open"} for m in self.members)
            if effects:
                self._enter("COMPENSATING", "group:compensating")
            else:
                self._enter("FAILED", "group:failed FAILED")
        if (
            self.state == "COMPENSATING"
            and not more
            and self.all_ended
            and not any(member.wants_undo for member in self.members)
        ):
            failed = any(undo.book == "failed" for undo in self.undos)
            end = "FAILED_COMPENSATION" if failed else "FAILED"
            self._enter(end, f"group:failed {end}")

    def _enter(self, state: str, event: str) -> None:
        self.state = state
        self.events.append(event)


def undo_of(member: Member) -> Job:
    """Return the undo of a member: two attempts, the second after a long delay."""
    return Job(f"{member.id}-undo", f"{member.queue}:compensation", attempts=2, backoff=True)


def _note_lost(job: Job) -> bool:
    """Correct the ledger as a harvest does; return whether the job was in no part of it."""
    if job.book == "failed" and job.place == "completed":
        job.book = "done"
    if job.book == "nowhere":
        job.book = "failed"
        return True
    return False


def _pick(
    candidates: Sequence[Member], touched: AbstractSet[str], budget: int, more: bool
) -> Sequence[Member]:
    """Return the candidates that a call changed: all, if it reports no work left."""
    picked = [job for job in candidates if job.id in touched]
    names = f"{[job.id for job in picked]} of {[job.id for job in candidates]}"
    assert len(picked) <= budget, f"a call exceeded its budget: it changed {names}"
    assert more or len(picked) == len(candidates), f"a call left work: it changed {names}"
    return picked
