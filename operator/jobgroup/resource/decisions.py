"""What is to be done about a resource: its object and its group -> one step. Pure.

A step is taken, then the resource is looked at again: so every step can be the last one before a
crash, and the next look finds where to go on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any

from jobgroup.conditions import Trouble
from jobgroup.snapshot import ENDED, GroupState

FINALIZER = "jobgroups.dev/group"
# Which group this object stands for: `<uid>/<epoch>`. A copy of the object brings another's along.
NOTE = "jobgroups.dev/group"


class Step(Enum):
    """What a reconcile may do next."""

    NOTHING = auto()
    CLAIM = auto()
    CREATE = auto()
    CANCEL = auto()
    EXPIRE = auto()
    REPORT = auto()
    SUSPENDED = auto()
    CANCELLED = auto()
    LOST = auto()
    DELETE = auto()
    LEAVE = auto()
    REMOVE = auto()
    DISOWN = auto()
    RENOUNCE = auto()


# Why there is no group, and will not be one, or not yet.
TROUBLES = {
    Step.SUSPENDED: Trouble("Suspended", "spec.suspend is true", stalled=False),
    Step.CANCELLED: Trouble("Cancelled", "cancelled before it was created"),
    Step.LOST: Trouble(
        "RedisStateLost",
        "Redis has lost the group, or this is another Redis; it is not run again",
    ),
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A JobGroup as far as decisions need it; its jobs stay where they are."""

    uid: str
    generation: int
    deleting: bool
    claimed: bool
    note: str
    cancel: bool
    suspend: bool
    orphan: bool
    deadline_seconds: int | None
    ttl_seconds: int | None
    observed: int
    state: str
    finished_at: int | None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "Resource":
        """Take from an object what matters."""
        meta, spec, status = body["metadata"], body.get("spec") or {}, own_status(body)
        finished = status.get("finishedAt")
        return cls(
            uid=meta["uid"],
            generation=meta.get("generation", 0),
            deleting="deletionTimestamp" in meta,
            claimed=FINALIZER in (meta.get("finalizers") or ()),
            note=(meta.get("annotations") or {}).get(NOTE, ""),
            cancel=bool(spec.get("cancel")),
            suspend=bool(spec.get("suspend")),
            orphan=spec.get("deletionPolicy") == "Orphan",
            deadline_seconds=spec.get("activeDeadlineSeconds"),
            ttl_seconds=spec.get("ttlSecondsAfterFinished"),
            observed=status.get("observedGeneration", -1),
            state=status.get("state") or "",
            finished_at=_milliseconds(finished) if finished else None,
        )

    @property
    def ended(self) -> bool:
        """Say whether the status tells of an end."""
        return self.state in ENDED

    def is_of(self, epoch: str) -> bool:
        """Say whether this object's group, if it was made, was made in this life of Redis."""
        return self.note == f"{self.uid}/{epoch}"

    @property
    def is_noted(self) -> bool:
        """Say whether the note is this object's own and not brought along from another."""
        return self.note.startswith(f"{self.uid}/")

    @property
    def is_ours(self) -> bool:
        """Say whether the object is held, and tells of which life of Redis its group is."""
        return self.claimed and self.is_noted


def next_step(resource: Resource, group: GroupState | None, epoch: str, now: int) -> Step:
    """Decide; times are milliseconds."""
    if resource.deleting:
        return _last_steps(resource, group)
    if group is None:
        return _first_steps(resource, epoch, now)
    if not resource.is_ours:
        return Step.CLAIM  # let go when the operator was uninstalled, or replaced by hand
    if group.state == "ACTIVE":
        if resource.cancel:
            return Step.CANCEL
        if _is_past(_deadline(resource, group), now):
            return Step.EXPIRE
    if resource.state != group.state:
        return Step.REPORT
    return Step.DELETE if _is_past(_expiry(resource), now) else Step.REPORT


def own_status(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an object's status says, unless it was brought along from another object."""
    status: dict[str, Any] = body.get("status") or {}
    uid = body["metadata"]["uid"]
    return status if status.get("groupId", uid) == uid else {}


def released(body: Mapping[str, Any]) -> list[str]:
    """Return the finalizers of an object without ours."""
    return [name for name in body["metadata"].get("finalizers") or () if name != FINALIZER]


def _first_steps(resource: Resource, epoch: str, now: int) -> Step:
    if resource.ended:
        # Its group was removed by hand, or went with its Redis: what was said stays said.
        if _is_past(_expiry(resource), now):
            return Step.DELETE
        return Step.NOTHING if resource.observed == resource.generation else Step.REPORT
    if resource.state not in ("", "PENDING"):
        return Step.LOST  # it had a group
    if resource.is_noted and not resource.is_of(epoch):
        return Step.LOST  # it may have had one, in another life of Redis
    # Also after the claim: making the group may have been refused, or cut off by a crash.
    if resource.cancel:
        return Step.CANCELLED
    if resource.suspend:
        return Step.SUSPENDED
    return Step.CREATE if resource.is_ours else Step.CLAIM


def _last_steps(resource: Resource, group: GroupState | None) -> Step:
    if not resource.claimed:
        return Step.NOTHING
    if group is None:
        return Step.RENOUNCE
    if group.ended:
        return Step.REMOVE
    if resource.orphan:
        return Step.DISOWN
    return Step.CANCEL if group.state == "ACTIVE" else Step.LEAVE


def look_again_at(resource: Resource, group: GroupState | None) -> int | None:
    """Return when time alone will call for a step."""
    if resource.deleting:
        return None
    if group is None or group.ended:
        return _expiry(resource, group.finished_at if group else None)
    return _deadline(resource, group) if group.state == "ACTIVE" else None


def _deadline(resource: Resource, group: GroupState) -> int | None:
    """Return when a running group is to be given up."""
    if resource.deadline_seconds is None:
        return None
    return group.created_at + resource.deadline_seconds * 1000


def _expiry(resource: Resource, finished_at: int | None = None) -> int | None:
    """Return when an ended group's object is to be deleted."""
    finished_at = finished_at or resource.finished_at
    if resource.ttl_seconds is None or finished_at is None:
        return None
    return finished_at + resource.ttl_seconds * 1000


def _is_past(time: int | None, now: int) -> bool:
    return time is not None and now >= time


def _milliseconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)
