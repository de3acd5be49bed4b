"""A model of one job, and of a member: what stock clients do to it. No Redis, no Lua, no clock."""

from dataclasses import dataclass, field
from typing import Literal

from jobgroup.definition.answers import Answer

# waited, or 6.x deleted the set in which it was after it had failed.
Place = Literal["waiting", "delayed", "active", "completed", "failed", "lost", "orphaned", "gone"]
Book = Literal["open", "done", "failed", "nowhere"]
Event = Literal["added", "active", "completed", "failed"]

# Where a job is in the ledger that is rebuilt from its queue; elsewhere it is open.
PLACE_IN_LEDGER: dict[Place, Book] = {"completed": "done", "failed": "failed"}

# The queue of undos that some mappings name.
UNDOS = "undos"
# The queue of the jobs of onEnd.
ENDS = "ends"

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
    unkept_if_failed: bool = False  # its options have BullMQ remove it when it fails
    taken_unkept: bool = False  # they did so when its worker took it and read them
    valued: bool = True  # its hash has a return value
    history: list[Event] = field(default_factory=lambda: ["added"])  # in the stream of its queue
    ever_completed: bool = False
    forgotten: bool = False  # an undo of which nothing is left; it counts as failed
    retrying: bool = False  # an undo whose retry was accepted, and that is not in its queue yet
    made: int = 1  # how often an undo was added to its queue
    # How often workers had run an undo when somebody resolved it.
    resolved_after: int | None = None

    @property
    def finished(self) -> bool:
        return self.place in {"completed", "failed", "orphaned"}

    @property
    def pending(self) -> bool:
        return self.place in {"waiting", "delayed", "lost"}

    @property
    def hashed(self) -> bool:
        return self.place != "gone"

    @property
    def names_parent(self) -> bool:
        """Whether it has a hash that names its pseudo parent."""
        return self.hashed

    def take(self) -> None:
        """Start the job in a worker."""
        self.place, self.locked = "active", True
        self.taken_unkept = self.unkept_if_failed
        self.starts += 1
        self.ats += 1
        self.entered += not self.doomed
        self.history.append("active")

    def complete(self) -> None:
        """Complete the job; the ledger records it if the job was open."""
        self._leave_worker("completed")
        self.tries += 1
        self.ever_completed = self.valued = True
        self.history.append("completed")
        if self.book == "open":
            self.book = "done"

    def fail(self, finally_: bool) -> None:
        """Fail one attempt, or fail the job if it was the last attempt."""
        self.tries += 1
        if finally_ or self.tries >= self.attempts:
            self._leave_worker("gone" if self.taken_unkept else "failed")
            self.history.append("failed")
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
        if booked and is_in_ledger and self.names_parent and not self.sealed:
            self.book = "open"
        if self.place == "completed":
            self.valued = False
        self.place = "waiting"

    def requeue(self) -> None:
        """Retry an undo by request: with all its attempts, and made again if it is gone."""
        if self.place == "gone":
            self.made += 1
            self.stalls, self.doomed = 0, False
            self.history.append("added")
        self.place, self.book, self.tries, self.ats = "waiting", "open", 0, 0

    def resolve(self) -> None:
        """Resolve an undo: one that waits leaves its queue; no worker runs it any more."""
        if self.book == "open" and self.place in {"waiting", "delayed"}:
            self.vanish(booked=False)
        self.book, self.resolved_after, self.retrying = "failed", self.entered, False
        self.doomed = self.sealed = self.unkept_if_failed = True

    @property
    def resolved(self) -> bool:
        return self.resolved_after is not None

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
    undo_queue: str = ""
    cancelled: bool = False
    removed: bool = False  # a harvest found it missing
    noted: bool = False  # the scripts recorded that it completed before it was run again
    maybe_started: bool = False  # the scripts recorded that it may have started
    missed: bool = False  # seen active without a worker
    stuck: bool = False  # a call left it, doomed, in a list that is too long to search
    detached: bool = False  # somebody removed it from its parent
    unlisted: bool = False  # its group was restored without it
    unmapped: bool = False  # its group was restored without its mapping
    recorded: bool = False  # the group's hash shows that it completed
    answer: Answer | None = None  # what somebody completed it with, or why it failed
    unkept: frozenset[str] = frozenset()  # places from which retention removes it

    @property
    def names_parent(self) -> bool:
        return self.hashed and not self.detached

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
        is_ours = self.names_parent and not self.stuck
        return self.book == "done" and is_ours and not self.finished

    @property
    def wants_undo(self) -> bool:
        if self.when is None or self.undo is not None or self.book == "open":
            return False
        if self.book == "done" or self.noted:
            return True
        return self.when == "Started" and self.maybe_started

    def end_as(self, answer: Answer) -> None:
        """End the member as somebody answered, who acts as a worker."""
        self.answer = answer
        self.take()
        if answer.outcome == "completed":
            self.complete()
        else:
            self.fail(finally_=True)

    def lose_records(self) -> None:
        """Lose what only the pseudo parent records."""
        self.answer = None
        self.book = "nowhere"
        self.removed = self.noted = self.maybe_started = False
        self.missed = self.stuck = False

    def detach(self) -> None:
        """Remove the member from its parent: it stays in its queue, but the ledger loses it."""
        self.book, self.detached = "nowhere", True

    def adopt(self) -> None:
        """Put it back into the ledger if it was removed from its parent."""
        if self.book == "nowhere" and self.detached and self.hashed and self.valued:
            self.detached = False
            self.book = PLACE_IN_LEDGER.get(self.place, "open")


def undo_of(member: Member) -> Job:
    """Return the undo of a member: two attempts, the second after a long delay.

    Without the mapping, nothing is added to the queue, so the undo is missing.
    """
    queue = member.undo_queue or f"{member.queue}:compensation"
    undo = Job(f"{member.id}-undo", queue, attempts=2, backoff=True)
    if member.unmapped:
        undo.place, undo.book = "gone", "nowhere"
        undo.history.clear()
    return undo
