"""A JobGroup object and its group -> the next step. Pure.

The operator takes one step, reads both again and decides anew. So it may crash after any step: the
next reconcile continues from what it reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any

from jobgroup.model.snapshot import ENDED, GroupState
from jobgroup.resource import reasons
from jobgroup.resource.conditions import Problem

FINALIZER = "jobgroups.dev/group"
# `<uid>/<incarnation>` of the group of this object. In a copied object it has the original's uid.
GROUP_ANNOTATION = "jobgroups.dev/group"
# `<namespace>/<lease>` of the release that claimed this object; without it, any release may.
RELEASE_ANNOTATION = "jobgroups.dev/release"


class Claimant(Enum):
    """Which release of the operator claimed an object."""

    OURS = auto()  # this one, or none
    GONE = auto()  # another one, which does not process the object any more
    ALIVE = auto()  # another one
    UNKNOWN = auto()  # another one, and this one may not read its Lease


# The objects of these are left alone.
OTHERS = (Claimant.ALIVE, Claimant.UNKNOWN)

# How long the first report of a group may wait for more urgent work.
FIRST_REPORT_MS = 500


class Step(Enum):
    """What a reconcile does next."""

    NOTHING = auto()
    LEAVE = auto()
    CLAIM = auto()
    CREATE = auto()
    CANCEL = auto()
    EXPIRE = auto()
    ANSWER = auto()
    RESOLVE = auto()
    RETRY = auto()
    REPORT = auto()
    BLOCK_SUSPENDED = auto()
    BLOCK_CANCELLED = auto()
    BLOCK_LOST = auto()
    DELETE = auto()
    AWAIT_COMPENSATION = auto()
    REMOVE = auto()
    ORPHAN = auto()
    TOMBSTONE = auto()


# The problem that an object without a group reports, by step.
PROBLEMS = {
    Step.BLOCK_SUSPENDED: Problem(
        reasons.SUSPENDED,
        "spec.suspend is true; set it to false to create the group",
        stalled=False,
    ),
    Step.BLOCK_CANCELLED: Problem(
        reasons.CANCELLED, "spec.cancel was set before the group was created; no job ran"
    ),
    Step.BLOCK_LOST: Problem(
        reasons.REDIS_STATE_LOST,
        "Redis lost the group, or the operator uses another Redis; the group is not run again:"
        " check which jobs ran, then delete this JobGroup and create a new one",
    ),
}


@dataclass(frozen=True, slots=True)
class Resource:
    """The fields of a JobGroup that decide the next step."""

    uid: str
    generation: int
    deleting: bool
    claimed: bool
    annotation: str
    release: str
    cancel: bool
    suspend: bool
    orphan: bool
    deadline_seconds: int | None
    ttl_seconds: int | None
    observed: int
    state: str
    finished_at: int | None
    # How often failed undos are to be retried, and how often they were when the status was written.
    retry_undos: int = 0
    retries: int = 0
    # Whether the spec resolves an undo.
    resolves: bool = False

    @classmethod
    def read(cls, body: Mapping[str, Any], default_ttl: int | None = None) -> "Resource":
        """Read the fields from an object; `default_ttl` is for one without a time to live."""
        meta, spec, status = body["metadata"], body.get("spec") or {}, own_status(body)
        annotations = meta.get("annotations") or {}
        finished, ttl = status.get("finishedAt"), spec.get("ttlSecondsAfterFinished")
        return cls(
            uid=meta["uid"],
            generation=meta.get("generation", 0),
            deleting="deletionTimestamp" in meta,
            claimed=FINALIZER in (meta.get("finalizers") or ()),
            annotation=annotations.get(GROUP_ANNOTATION, ""),
            release=annotations.get(RELEASE_ANNOTATION, ""),
            cancel=bool(spec.get("cancel")),
            suspend=bool(spec.get("suspend")),
            orphan=spec.get("deletionPolicy") == "Orphan",
            deadline_seconds=spec.get("activeDeadlineSeconds"),
            ttl_seconds=default_ttl if ttl is None else ttl,
            observed=status.get("observedGeneration", -1),
            state=status.get("state") or "",
            finished_at=_milliseconds(finished) if finished else None,
            retry_undos=spec.get("retryUndos") or 0,
            retries=(status.get("compensation") or {}).get("retries", 0),
            resolves=bool(spec.get("resolved")),
        )

    @property
    def ended(self) -> bool:
        """Return whether the status is terminal."""
        return self.state in ENDED

    @property
    def may_compensate_again(self) -> bool:
        """Return whether the spec asks for more, although the reported compensation has failed."""
        has_failed = self.state == "FAILED_COMPENSATION"
        return has_failed and (self.resolves or self.retry_undos > self.retries)

    def is_from(self, incarnation: str) -> bool:
        """Return whether the group of this object was claimed in this incarnation of Redis."""
        return self.annotation == f"{self.uid}/{incarnation}"

    @property
    def is_annotated(self) -> bool:
        """Return whether the annotation was written for this object, not copied from another."""
        return self.annotation.startswith(f"{self.uid}/")

    @property
    def claimed_by(self) -> str:
        """Return the release that claimed this object; empty if it was copied or has no claim."""
        return self.release if self.is_annotated else ""

    @property
    def is_ours(self) -> bool:
        """Return whether the claim of the object is complete, whichever release it names.

        One that has ended needs no name: an upgrade would write all that an older release claimed.
        """
        return self.claimed and self.is_annotated and (bool(self.release) or self.ended)


def next_step(
    resource: Resource,
    group: GroupState | None,
    incarnation: str,
    now: int,
    claimant: Claimant = Claimant.OURS,
    is_answered: bool = False,
    is_resolved: bool = False,
) -> Step:
    """Return the next step; `now` is in milliseconds.

    `is_answered` is whether the spec has an answer to a job that is pending, and `is_resolved`
    whether it resolves an undo that failed or waits.
    """
    if claimant in OTHERS:
        return Step.LEAVE
    if resource.deleting:
        return _last_steps(resource, group, is_resolved)
    is_claimed = resource.is_ours and claimant is Claimant.OURS
    if group is None:
        return _first_steps(resource, incarnation, now, is_claimed)
    if not is_claimed:
        return Step.CLAIM  # an uninstall released it, a user changed it, or we take over
    if step := _verb(resource, group, now, is_answered, is_resolved):
        return step
    if resource.state != group.state:
        return Step.REPORT
    return Step.DELETE if _is_past(_expiry(resource, group), now) else Step.REPORT


def patience(resource: Resource, group: GroupState, now: int) -> int:
    """Return for how many milliseconds the report of a group may give way to other objects.

    Only the first report of a group that runs may: if the group ends within that time, one write
    is enough. No other report waits, and none of a group whose age cannot be known, because another
    clock created it.
    """
    age = now - group.created_at
    if resource.state or group.state != "ACTIVE" or not 0 <= age < FIRST_REPORT_MS:
        return 0
    return FIRST_REPORT_MS - age


def own_status(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of an object, or an empty one if it was copied from another object."""
    status: dict[str, Any] = body.get("status") or {}
    uid = body["metadata"]["uid"]
    return status if status.get("groupId", uid) == uid else {}


def finalizers_without_ours(body: Mapping[str, Any]) -> list[str]:
    """Return the finalizers of an object without ours."""
    return [name for name in body["metadata"].get("finalizers") or () if name != FINALIZER]


def _first_steps(resource: Resource, incarnation: str, now: int, is_claimed: bool) -> Step:
    if resource.ended:
        # Somebody removed the group, or Redis lost it. The terminal status stays.
        if _is_past(_expiry(resource), now):
            return Step.DELETE
        return Step.NOTHING if resource.observed == resource.generation else Step.REPORT
    if resource.state not in ("", "PENDING"):
        return Step.BLOCK_LOST  # it had a group
    if resource.is_annotated and not resource.is_from(incarnation):
        # It may have had one, in another incarnation of Redis. A claim of another release stays:
        # that release may still have the group in its Redis.
        return Step.BLOCK_LOST
    # Also after the claim: the creation may have been refused or cut off by a crash.
    if resource.cancel:
        return Step.BLOCK_CANCELLED
    if resource.suspend:
        return Step.BLOCK_SUSPENDED
    return Step.CREATE if is_claimed else Step.CLAIM


def _last_steps(resource: Resource, group: GroupState | None, is_resolved: bool) -> Step:
    if not resource.claimed:
        return Step.NOTHING
    if group is None:
        return Step.TOMBSTONE
    if group.ended:
        return Step.REMOVE
    if resource.orphan:
        return Step.ORPHAN
    if is_resolved:
        return Step.RESOLVE
    return Step.CANCEL if group.state == "ACTIVE" else Step.AWAIT_COMPENSATION


def outlives_its_namespace(group: GroupState | None) -> bool:
    """Return whether a group stays in Redis if its object is deleted with the namespace.

    A person must act on it, but nobody deleted that object by itself, and no Event can report the
    undo that failed.
    """
    return group is not None and group.undo_failed_count > 0


def requeue_at(resource: Resource, group: GroupState | None) -> int | None:
    """Return when the deadline, the time to live or a retry requires the next step.

    The time is in milliseconds; 0 stands for at once.
    """
    if resource.deleting:
        return None
    if group and _is_to_retry(resource, group):
        return 0
    if group is None or group.ended:
        return _expiry(resource, group)
    return _deadline(resource, group) if group.state == "ACTIVE" else None


def _verb(
    resource: Resource, group: GroupState, now: int, is_answered: bool, is_resolved: bool
) -> Step | None:
    """Return the step with which the spec changes the group, if it does."""
    if group.state == "ACTIVE":
        if resource.cancel:
            return Step.CANCEL
        if _is_past(_deadline(resource, group), now):
            return Step.EXPIRE
        return Step.ANSWER if is_answered else None
    if is_resolved:
        return Step.RESOLVE
    return Step.RETRY if _is_to_retry(resource, group) else None


def _is_to_retry(resource: Resource, group: GroupState) -> bool:
    """Return whether failed undos are retried now: each end is reported before."""
    if group.state != "FAILED_COMPENSATION" or resource.state != group.state:
        return False
    return resource.retries == group.retries < resource.retry_undos


def _deadline(resource: Resource, group: GroupState) -> int | None:
    """Return when an active group is cancelled."""
    if resource.deadline_seconds is None:
        return None
    return group.created_at + resource.deadline_seconds * 1000


def _expiry(resource: Resource, group: GroupState | None = None) -> int | None:
    """Return when the object of an ended group is deleted.

    A failed compensation does not expire: a person has to act, and a deletion would end the alert.
    """
    # The group may have ended again since the status was written.
    finished_at = (group and group.finished_at) or resource.finished_at
    state = group.state if group else resource.state
    if state == "FAILED_COMPENSATION" or resource.ttl_seconds is None or finished_at is None:
        return None
    return finished_at + resource.ttl_seconds * 1000


def _is_past(time: int | None, now: int) -> bool:
    return time is not None and now >= time


def _milliseconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)
