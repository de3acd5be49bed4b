"""What happened to a group since its status was last written -> the Events to post. Pure.

Never one a job: a group has a handful in its life, and the same one twice has the same name. What
it says may differ by then, for counts go on while an operator is replaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

from jobgroup.conditions import Trouble, clean, seconds
from jobgroup.snapshot import ENDED, GroupState
from jobgroup.status import ending, why

# Why a group was given up that no job had failed of.
_REQUESTS = {"cancelled": "Cancelled", "DeadlineExceeded": "DeadlineExceeded"}


@dataclass(frozen=True, slots=True)
class News:
    """One thing worth telling whoever looks at `kubectl describe` and `kubectl get events`."""

    kind: str  # Normal or Warning
    reason: str
    message: str
    # What tells it from others of its reason, where a life may have several.
    which: str = ""
    # The job it is about, if it is about one.
    job: str = ""


def news_of(status: Mapping[str, Any], group: GroupState, names: Mapping[str, str]) -> list[News]:
    """Say what happened since this status was written."""
    before = status.get("state") or ""
    if group.state == "COMPLETED":
        return []
    if before in ENDED and before == group.state:
        counts = status.get("compensation") or {}
        known = (counts.get("total", 0), counts.get("completed", 0), counts.get("failed", 0))
        if known == (group.undo_count, group.undone_count, group.undo_failed_count):
            return []
        late = f"a job ended after its group had: {ending(group)}"
        return [News("Warning", "LateChange", late, which=late)]
    told = []
    if group.failed_at is not None and before not in ("COMPENSATING", *ENDED):
        reason = "Failed" if group.failed_job_id else _REQUESTS.get(group.reason, "Failed")
        kind = "Normal" if reason == "Cancelled" else "Warning"
        job = names.get(group.failed_job_id, group.failed_job_id)
        told.append(News(kind, reason, why(group, names), job=job))
        if group.was_compensating:
            done = f"{group.completed_count} of {group.total_jobs} jobs had completed"
            told.append(News("Normal", "Compensating", f"undoing what was done: {done}"))
    if group.ended and group.undo_failed_count:
        told.append(News("Warning", "CompensationFailed", ending(group)))
    elif group.ended and group.undo_count:
        told.append(News("Normal", "Compensated", ending(group)))
    return told


def news_of_trouble(status: Mapping[str, Any], trouble: Trouble) -> list[News]:
    """Say that a resource does not move on without a person, if its status does not yet."""
    message = clean(trouble.message)
    told = [(each["reason"], each["message"]) for each in status.get("conditions") or ()]
    if not trouble.stalled or (trouble.reason, message) in told:
        return []
    return [News("Warning", trouble.reason, message, which=message)]


def event_of(news: News, body: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Spell news about an object as a Kubernetes Event."""
    meta = body["metadata"]
    content = "\n".join((meta["uid"], news.reason, news.which))
    name = sha1(content.encode(), usedforsecurity=False).hexdigest()[:16]
    # Cut anywhere, a name may end in what a part of a name must not end in.
    whose = meta["name"][:200].rstrip("-.")
    return {
        "metadata": {"name": f"{whose}.{name}", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "type": news.kind,
        "reason": news.reason,
        "message": news.message,
        "source": {"component": "jobgroup-operator"},
        "reportingComponent": "jobgroup-operator",
        "firstTimestamp": seconds(now),
        "lastTimestamp": seconds(now),
        "count": 1,
    }
