"""Frozen values of what the scripts return; parsing only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

State = Literal["ACTIVE", "COMPENSATING", "COMPLETED", "FAILED", "FAILED_COMPENSATION"]
STATES: tuple[State, ...] = get_args(State)
JobStatus = Literal["pending", "active", "completed", "failed", "cancelled"]
# Of a member: none was needed or made yet, or how it went.
UndoStatus = Literal["", "pending", "completed", "failed"]
ENDED: frozenset[str] = frozenset({"COMPLETED", "FAILED", "FAILED_COMPENSATION"})


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group as Redis knows it now, in the order of lua/includes/snapshot.lua."""

    id: str
    name: str
    state: State
    created_at: int
    updated_at: int
    total_jobs: int
    completed_count: int
    failed_count: int
    cancelled_count: int
    revision: int
    failed_job_id: str
    reason: str
    finished_at: int | None
    undo_count: int
    undone_count: int
    undo_failed_count: int
    failed_at: int | None
    failed_attempts: int
    owner: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def was_compensating(self) -> bool:
        """Say whether a group is or was COMPENSATING, for a millisecond at least.

        With nothing to undo and nothing to wait for it failed and ended at once. So it did, too, if
        what had been done has no undo, but by way of COMPENSATING.
        """
        if self.failed_at is None:
            return False
        return self.failed_at != self.finished_at or self.completed_count + self.undo_count > 0

    @classmethod
    def parse(cls, row: Sequence[Any]) -> Self:
        """Read one row of lua/includes/snapshot.lua."""
        group_id, name, state, *rest = row
        created, updated, total, completed, failed, cancelled, revision = map(int, rest[:7])
        failed_job, reason, finished = rest[7:10]
        undos, undone, undo_failed = map(int, rest[10:13])
        failed_at, attempts, owner = rest[13:]
        return cls(
            group_id,
            name,
            state,
            created,
            updated,
            total,
            completed,
            failed,
            cancelled,
            revision,
            failed_job,
            reason,
            int(finished) if finished else None,
            undos,
            undone,
            undo_failed,
            int(failed_at) if failed_at else None,
            int(attempts),
            owner,
        )


@dataclass(frozen=True, slots=True)
class GroupJob:
    """One member and where it is now."""

    job_id: str
    job_key: str
    status: JobStatus
    queue_name: str
    undo: UndoStatus = ""

    @classmethod
    def parse_all(cls, row: Sequence[str]) -> "list[GroupJob]":
        """Read the rows of read_jobs.lua, in the order of the definition."""
        found = [
            cls(job_id, key, status, queue, undo)
            for key, queue, job_id, status, undo in zip(*[iter(row)] * 5, strict=True)
        ]
        return sorted(found, key=lambda job: int(job.job_id.rpartition("-")[2]))


@dataclass(frozen=True, slots=True)
class Settled:
    """What one call of settle_group.lua did and found, and the undos that ended before it."""

    group: GroupState
    changed: bool
    more: bool
    open: int
    repaired: bool
    before: State
    undone: int
    undo_failed: int

    @classmethod
    def parse(cls, row: Sequence[Any]) -> Self:
        """Read one answer of settle_group.lua."""
        changed, more, still_open, repaired, before, undone, undo_failed, group = row
        return cls(
            GroupState.parse(group),
            bool(changed),
            bool(more),
            int(still_open),
            bool(repaired),
            before,
            undone,
            undo_failed,
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """All groups of one Redis at one moment, in milliseconds.

    `oldest` tells of each state that has a group since when the oldest is there: since it was
    made, or since its undoing began. `waited` is how long the first of the wake-up list is on it.
    """

    groups: dict[State, int]
    oldest: dict[State, int]
    wakeups: int
    waited: int

    @classmethod
    def parse(cls, row: Sequence[Any]) -> Self:
        """Read the answer of read_totals.lua."""
        wakeups, waited, *states = row
        return cls(
            {state: count for state, count, _ in states},
            {state: int(since) for state, _, since in states if since},
            wakeups,
            waited,
        )


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A group that was just created."""

    group_id: str
    group_name: str
    jobs: tuple[GroupJob, ...]


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """One event of a group's life, as its owning queue's stream has it."""

    id: str
    type: str  # group:completed, group:compensating or group:failed
    group_id: str
    group_name: str
    fields: dict[str, str]
