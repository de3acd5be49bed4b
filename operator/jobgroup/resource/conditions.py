"""The parts of a status that both kinds share: problems, conditions, times and texts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobgroup.model.text import printable, time_of
from jobgroup.resource import reasons

MAX_REASON = 1024


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a resource makes no progress. A stalled one needs a person; any other is retried."""

    reason: str
    message: str
    stalled: bool = True


def redis_problem(message: str, is_transient: bool) -> Problem:
    """Return the problem of a resource whose data Redis did not return; the operator retries."""
    return Problem(reasons.for_redis_error(is_transient), message, stalled=False)


def to_rfc3339(milliseconds: int) -> str:
    """Return a time in whole seconds, in the format of the Kubernetes API."""
    return time_of(milliseconds)[:19] + "Z"


def sanitize(text: str, limit: int = MAX_REASON) -> str:
    """Return a worker's text as one printable line of valid UTF-8, at most `limit` bytes."""
    whole = printable(text[:limit]).encode("utf-8", "replace")[:limit]
    return whole.decode("utf-8", "ignore")


def condition(kind: str, is_true: bool, reason: str, message: str) -> dict[str, str]:
    """Return a condition without its transition time."""
    return {
        "type": kind,
        "status": "True" if is_true else "False",
        "reason": reason,
        "message": sanitize(message),
    }


def with_transition_time(
    condition: dict[str, str], previous: Sequence[Mapping[str, Any]], generation: int, now: int
) -> dict[str, Any]:
    """Return a condition with the time when its status last changed."""
    since = to_rfc3339(now)
    for before in previous:
        if (before.get("type"), before.get("status")) == (condition["type"], condition["status"]):
            since = before.get("lastTransitionTime") or since
    return {**condition, "observedGeneration": generation, "lastTransitionTime": since}
