"""A model of a saga in plain Python: how a group of modelled jobs is settled.

The scripts may choose, for example, which members a call drops first. The model takes such a choice
as an argument and checks that it is allowed.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tests.sagas.histories.job_model import PLACE_IN_LEDGER, Book, Job, Member, undo_of

# The entries of onEnd, and the states that they match; without onEnd, no state.
END_JOBS = {
    "Always": {"COMPLETED", "FAILED", "FAILED_COMPENSATION"},
    "Failed": {"FAILED"},
    "FailedCompensation": {"FAILED_COMPENSATION"},
}


@dataclass(frozen=True)
class Chosen:
    """The choices of the scripts in one call of settle."""

    undone: AbstractSet[str]
    hashed: AbstractSet[str]  # members that have a hash after the call
    missed: AbstractSet[str]
    stuck: AbstractSet[str]  # members that a call left in a list that is too long to search
    more: bool  # whether work is left for another call
    retrying: AbstractSet[str] = frozenset()  # undos that are still to be added to their queues
    replaced: AbstractSet[str] = frozenset()  # jobs in whose place is a job of somebody else
    # Queues with a list that is too long to search.
    long_queues: AbstractSet[str] = frozenset()
    # Whether a key of the queue of the jobs of onEnd has the wrong type.
    ends_blocked: bool = False


@dataclass(eq=False)
class Group:
    """One saga."""

    id: str
    members: list[Member]
    state: str = "ACTIVE"
    events: list[str] = field(default_factory=list)
    # Whether a change caused no wake-up, so that only a resync finds it.
    unheard: bool = False
    # Whether its entry of the wake-up list was deleted, so that it is in no list.
    unwoken: bool = False
    # Whether somebody deleted the pseudo parent of its members, or of its undos.
    parentless: bool = False
    undos_parentless: bool = False
    # Whether somebody deleted its hash, together with all keys of its owning queue.
    hashless: bool = False
    # Whether its hash was restored, without the digest of its definition.
    has_no_digest: bool = False
    # Whether it was given up, and why, if no failed member was the cause.
    given_up: bool = False
    requested: str = ""
    # Whether a failed member gave it up; if not, `reason` is the cause.
    failed_first: bool = False
    reason: str = ""
    # Whether a retry of its undos was accepted, and no call has settled it since.
    retried: bool = False
    retention_applied: bool = False
    on_end: bool = False
    ends: int = 0  # how often it has entered an ended state
    end_jobs: list[str] = field(default_factory=list)
    end_jobs_left: list[str] = field(default_factory=list)
    final_counts: dict[str, int] = field(default_factory=dict)

    @property
    def undos(self) -> list[Job]:
        return [member.undo for member in self.members if member.undo]

    def ledger(self, undos: bool) -> Sequence[Job]:
        """Return the jobs of one of its two ledgers."""
        return self.undos if undos else self.members

    @property
    def has_undo_ledger(self) -> bool:
        """Whether it has a ledger of undos that can be restored."""
        is_known = not any(m.unmapped and m.undo_queue for m in self.members)
        return bool(self.undos) and not self.undos_parentless and is_known

    @property
    def broken(self) -> bool:
        """Whether it cannot be read or settled before a resync restores it."""
        return self.parentless or self.hashless

    @property
    def is_half_lost(self) -> bool:
        """Whether it could not be restored if somebody also deleted its hash."""
        forgotten = any(undo.forgotten for undo in self.undos)
        return self.parentless or self.undos_parentless or self.unwoken or forgotten

    @property
    def is_lost(self) -> bool:
        """Whether somebody deleted its hash, and its ledgers show nothing of it."""
        return self.hashless and not self.undos and all(m.book == "nowhere" for m in self.members)

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

    def can_be_answered(self, member: Member) -> bool:
        """Whether somebody can complete a member, or let it fail, without a worker."""
        runs = self.state == "ACTIVE" and not self.requested and member.answer is None
        is_open = member.book == "open" and member.names_parent
        return runs and is_open and member.place in {"waiting", "delayed"}

    @property
    def counts(self) -> dict[str, int]:
        """The counts that a reader sees, even while no driver runs."""
        return self.final_counts if self.ended else self.current_counts

    @property
    def current_counts(self) -> dict[str, int]:
        """The counts that the ledger shows."""
        statuses = [member.status for member in self.members]
        undos = [undo.book for undo in self.undos]
        resolved = sum(undo.resolved for undo in self.undos)
        return {
            "total_jobs": len(statuses),
            "completed_count": statuses.count("completed"),
            "failed_count": statuses.count("failed"),
            "cancelled_count": statuses.count("cancelled"),
            "undo_count": len(undos),
            "undone_count": undos.count("done"),
            "undo_failed_count": undos.count("failed") + undos.count("nowhere") - resolved,
            "resolved_count": resolved,
        }

    def lose_ledger(self, undos: bool) -> None:
        """Lose the pseudo parent of the members or of the undos, with all that it records."""
        self.unheard = True
        if undos:
            self.undos_parentless = True
            for undo in self.undos:
                undo.book = "nowhere"
        else:
            self.parentless = self.retention_applied = True
            self.given_up, self.requested = False, ""
            for member in self.members:
                member.lose_records()

    def lose_hash(self) -> None:
        """Lose the group's hash and its events."""
        self.hashless = self.unheard = True
        self.events.clear()

    def _restore(self) -> None:
        """Restore the hash from the ledgers, and the ledgers from the queues."""
        if self.hashless:
            self.hashless, self.has_no_digest = False, True
            for undo in self.undos:
                undo.retrying = False
            self.state = "COMPENSATING" if self.undos or self.given_up else "ACTIVE"
            self.requested = f"keys of the queue {self.queue} were deleted"
            self.failed_first, self.reason = False, ""
            for member in self.members:
                member.unmapped = True
                if member.book == "nowhere":
                    member.cancelled = True
                    member.unlisted = not (member.noted or member.maybe_started)
        if self.parentless:
            for member in self.members:
                if not member.cancelled:
                    member.book = _restored(member)
                    member.maybe_started = member.hashed and member.starts > 0
        if self.undos_parentless:
            self._restore_undos()
        self.parentless = self.undos_parentless = False

    def _restore_undos(self) -> None:
        for undo in self.undos:
            undo.retrying = False
            if undo.resolved:
                undo.book = "failed"
                continue
            undo.forgotten = not undo.hashed
            undo.book = PLACE_IN_LEDGER.get(undo.place, "open") if undo.hashed else "nowhere"
            if undo.place == "orphaned":
                undo.place = "lost"

    def can_retry(self, undo: Job, replaced: AbstractSet[str]) -> bool:
        """Return whether an undo can be added to its queue again."""
        member = next(member for member in self.members if member.undo is undo)
        if undo.place == "gone":
            is_known = not undo.forgotten and not member.unmapped
            return is_known and undo.book == "failed" and undo.id not in replaced
        return undo.book == "failed" and undo.finished and undo.place != "completed"

    def retry_undos(self, replaced: AbstractSet[str]) -> bool:
        """Retry the failed undos; return whether there is any that can be retried."""
        for undo in self.undos:
            undo.retrying = not undo.resolved and self.can_retry(undo, replaced)
        self.retried = any(undo.retrying for undo in self.undos)
        return self.retried

    def _requeue(self, chosen: Chosen, budget: int) -> None:
        """Add undos that are retried to their queues, as many as the budget allows."""
        done = [each for each in self.undos if each.retrying and each.id not in chosen.retrying]
        again = [undo for undo in done if self.can_retry(undo, chosen.replaced)]
        assert len(again) <= budget, f"a call retried {[undo.id for undo in again]}"
        assert chosen.more or not any(undo.retrying for undo in self.undos if undo not in done)
        for undo in done:
            undo.retrying = False
        for undo in again:
            undo.requeue()

    def settle(self, chosen: Chosen, budget: int, request: str = "", patient: bool = True) -> None:
        """Settle with one call, which may drop and undo at most `budget` members."""
        self._restore()
        request = request or (self.requested if self.state == "ACTIVE" else "")
        self._harvest()
        failing = self.state == "ACTIVE" and not self._all_done and (self._failed or bool(request))
        given_up = failing or self.state in {"COMPENSATING", "FAILED", "FAILED_COMPENSATION"}
        self._mark(given_up, failing)
        if failing or self.state == "COMPENSATING":
            self._look_for_workers(patient)
            self._drop(chosen, budget)
        if given_up:
            wanting = [m for m in self.members if m.wants_undo and m not in self.reruns]
            for member in _pick(wanting, chosen.undone, budget, chosen.more):
                member.undo = undo_of(member)
        self._requeue(chosen, budget)
        for undo in (undo for undo in self.undos if not undo.forgotten):
            _correct(undo)
        self._decide(failing, request, chosen.more)
        if not chosen.ends_blocked:
            self.end_jobs += self.end_jobs_left
            self.end_jobs_left = []
        if self.ended and not chosen.more and not self.retention_applied:
            self._apply_retention()
        self.unwoken = False
        for member in self.members:
            member.recorded = member.recorded or member.book == "done"
        # Only a review notices a job in no list.
        self.unheard = any(job.place == "lost" and job.book == "open" for job in self.jobs)
        self.final_counts = self.current_counts

    def _apply_retention(self) -> None:
        self.retention_applied = True
        for member in self.members:
            if member.place in member.unkept:
                member.place = "gone"

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
            member.adopt()
            if _correct(member):
                completed = member.noted or "completed" in member.history
                started = "active" in member.history or "added" not in member.history
                member.removed = not completed
                member.book = "done" if completed else "failed"
                member.maybe_started = member.maybe_started or (started and not completed)
            elif member.book in {"open", "failed"} and member.names_parent and not member.valued:
                member.noted = True
            elif member.book == "failed" and self.state == "ACTIVE" and not member.names_parent:
                self._trace_failed(member)

    def _trace_failed(self, member: Member) -> None:
        """Find a completion that BullMQ 5 did not record, of a failed member without a hash."""
        if "completed" in member.history and not member.removed:
            ends = [event for event in member.history if event in {"completed", "failed"}]
            if ends[-1] == "completed":
                member.book = "done"
            else:
                member.noted = True

    def _mark(self, given_up: bool, failing: bool) -> None:
        """Seal completed members, and doom all; what failed or started before has started."""
        for member in self.members:
            if member.names_parent and member.book != "nowhere":
                member.sealed = member.sealed or member.book == "done"
                if given_up:
                    is_new = not member.doomed or not member.unkept_if_failed
                    member.maybe_started = member.maybe_started or (is_new and member.starts > 0)
                    member.doomed = member.unkept_if_failed = True
            if failing and member.book == "failed" and not member.removed:
                member.maybe_started = True

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
                member.sealed = member.stuck = True
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
            self.given_up = True
            self.failed_first, self.reason = self._failed, request
            self.requested = request or self.requested
            effects = self.undos or any(m.book in {"done", "open"} for m in self.members)
            if effects:
                self._enter("COMPENSATING", "group:compensating")
            else:
                self._enter("FAILED", "group:failed FAILED")
        if self.retried and self.state == "FAILED_COMPENSATION":
            self._enter("COMPENSATING", "group:compensating")
        self.retried = False
        unresolved = [undo for undo in self.undos if not undo.resolved]
        failed = any(undo.book == "failed" or undo.forgotten for undo in unresolved)
        undone = not any(undo.book == "open" or undo.retrying for undo in self.undos) and not any(
            member.wants_undo for member in self.members
        )
        if self.state == "COMPENSATING" and not more and self.all_ended and undone:
            end = "FAILED_COMPENSATION" if failed else "FAILED"
            self._enter(end, f"group:failed {end}")
        elif self.state == "FAILED" and undone and failed:
            self._enter("FAILED_COMPENSATION", "group:failed FAILED_COMPENSATION")
        elif self.state == "FAILED_COMPENSATION" and undone and not failed:
            self._enter("FAILED", "group:failed FAILED")

    def _enter(self, state: str, event: str) -> None:
        self.state = state
        self.events.append(event)
        self.ends += self.ended
        if self.on_end:
            self.end_jobs_left += [
                f"{self.id}-end-{n}-{self.ends}"
                for n, states in enumerate(END_JOBS.values())
                if state in states
            ]


def _restored(member: Member) -> Book:
    """Return where a member is in the ledger that is restored from its queue and its group."""
    if member.recorded or (member.hashed and member.sealed):
        return "done"
    if not member.names_parent:
        return "nowhere"
    return PLACE_IN_LEDGER.get(member.place, "open")


def _correct(job: Job) -> bool:
    """Correct the ledger as a harvest does; return whether the job was missing."""
    if job.resolved:
        return False
    if job.book == "failed" and job.names_parent and not job.finished:
        job.book = "open"
    elif job.book == "failed" and job.names_parent and job.place == "completed":
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
