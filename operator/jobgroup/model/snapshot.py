"""Groups, jobs and totals as the scripts return them. Pure.

store/replies.py reads the replies into these values by name: `undoFailedCount` becomes the field
`undo_failed_count`. A reply may leave out a field that has a default or may be None.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from jobgroup.model.names import undo_queue

State = Literal["ACTIVE", "COMPENSATING", "COMPLETED", "FAILED", "FAILED_COMPENSATION"]
STATES: tuple[State, ...] = get_args(State)
JobStatus = Literal["pending", "active", "completed", "failed", "cancelled"]
# Empty if the job needs no undo, or if its undo has not been created yet.
UndoStatus = Literal["", "pending", "completed", "failed", "resolved"]
ENDED: frozenset[str] = frozenset({"COMPLETED", "FAILED", "FAILED_COMPENSATION"})


@dataclass(frozen=True, slots=True)
class Record:
    """A request that somebody made about a group: cancel, or another verb.

    `by` is who asked for it, `job` is the id of the job that it is about, and `reason` is why; each
    is empty if nobody said so.
    """

    verb: str
    at: int
    by: str = ""
    job: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group as lua/includes/snapshot.lua returns it.

    `finished_at` is the time of its latest end, stored when the group is settled. It is None in an
    ended state if the state was derived because Redis takes no writes.
    """

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
    failed_job_id: str = ""
    reason: str = ""
    finished_at: int | None
    undo_count: int = 0
    undone_count: int
    undo_failed_count: int
    failed_at: int | None
    failed_attempts: int = 0
    # When its failed undos were last retried; a retry does not change `failed_at`.
    compensating_at: int | None = None
    # How often its failed undos were retried by request.
    retries: int = 0
    # Undos that people resolved; they are not among the failed ones.
    resolved_count: int = 0
    # The number of its latest end, 1 for the first one and before it.
    attempt: int = 1
    # From its end to its removal, and from its creation to its cancellation; None for no limit.
    ttl_seconds: int | None = None
    deadline_seconds: int | None = None
    owner: str
    # Why a job of onEnd could not be added; a driver tries it again.
    on_end_error: str = ""
    # Namespace and name of the JobGroup that has or had this group.
    resource: str = ""
    # The latest ten requests, the oldest first.
    records: tuple[Record, ...] = ()

    @property
    def ended(self) -> bool:
        """Return whether the state is terminal."""
        return self.state in ENDED

    @property
    def since(self) -> int:
        """Return since when the group has been in its state."""
        if self.ended and self.finished_at is not None:
            return self.finished_at
        if self.state == "COMPENSATING":
            return self.compensating_at or self.failed_at or self.created_at
        return self.updated_at if self.ended else self.created_at

    @property
    def was_compensating(self) -> bool:
        """Return whether the group is or was COMPENSATING.

        A group with nothing to undo and nothing to wait for goes from ACTIVE to FAILED directly. A
        group whose completed jobs have no undo passes through COMPENSATING within one call.
        """
        if self.failed_at is None:
            return False
        return self.failed_at != self.finished_at or self.completed_count + self.undo_count > 0


@dataclass(frozen=True, slots=True)
class GroupJob:
    """One job of a group and its status.

    `undo_queue` is the queue of its undo; it is empty for `<queueName>:compensation`, and before
    the undo was added. `answer` is the digest of the answer that finished it without a worker.
    """

    job_id: str
    job_key: str
    status: JobStatus
    queue_name: str
    undo: UndoStatus = ""
    undo_queue: str = ""
    answer: str = ""
    # Who resolved its undo, and why; both are empty unless `undo` is "resolved".
    resolved_by: str = ""
    resolved_reason: str = ""

    @property
    def undoes_in(self) -> str:
        """Return the queue in which this job is undone."""
        return self.undo_queue or undo_queue(self.queue_name)


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why a job or an undo failed for good, as BullMQ stores it.

    The name is empty if the queue no longer has the job. `attempts_made` is 0 if it is unknown, or
    if the job failed before an attempt ended.
    """

    job_id: str
    name: str
    queue_name: str
    attempts_made: int
    reason: str


@dataclass(frozen=True, slots=True)
class JobDetails:
    """One job of a group with its name, and why it and its undo failed, if they did."""

    job: GroupJob
    name: str
    failure: JobFailure | None = None
    undo_failure: JobFailure | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job returned; the name is empty if its queue no longer has the job."""

    job_id: str
    name: str
    queue_name: str
    value: Any


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of groups. `cursor` leads to the next page; None if there is none."""

    groups: tuple[GroupState, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class PrunedPage:
    """Groups that were removed, and how many were skipped, because a JobGroup owns them."""

    state: State
    group_ids: tuple[str, ...]
    owned: int


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A page of return values. `cursor` leads to the next page; None if there is none."""

    results: tuple[JobResult, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What one call of settle_group.lua did to a group, and the group, if that was asked for.

    `entered` are the states that the group entered, in order. `ran_for` is for how many
    milliseconds it ran, if this call ended it for the first time. `failed_queues` are the queues
    with failed jobs of a group that this call ended. `undone` and `undo_failed` count the undos
    that finished since the call before, and `undo_resolved` those that this call resolved.
    """

    state: State
    entered: tuple[State, ...]
    changed: bool
    settled_at: int = 0
    ran_for: int | None = None
    more: bool = False
    open: int = 0
    repaired: bool = False
    undone: int = 0
    undo_failed: int = 0
    undo_resolved: int = 0
    failed_queues: tuple[str, ...] = ()
    group: GroupState | None = None


@dataclass(frozen=True, slots=True)
class OwnedGroup:
    """What an owner needs to find the resource of a group; `jobs` is 0 if it cannot be read."""

    resource: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Totals:
    """All groups of one Redis at one moment, in milliseconds.

    `oldest` contains, for each state that has a group, the earliest time at which one of them was
    created, began its compensation or, in an ended state, ended. `waited` is the age of the first
    entry of the wake-up list.
    """

    groups: dict[State, int]
    oldest: dict[State, int]
    wakeups: int
    waited: int


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A group that was just created."""

    group_id: str
    group_name: str
    jobs: tuple[GroupJob, ...]


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """One group event from the event stream of the owning queue."""

    id: str
    type: str  # group:completed, group:compensating or group:failed
    group_id: str
    group_name: str
    fields: dict[str, str]
