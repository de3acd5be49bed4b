"""What the status of any resource is made of: troubles, conditions, times, clean texts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobgroup.progress import printable, time_of

MAX_REASON = 1024


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a resource does not move on; a stalled one needs a person, another only time."""

    reason: str
    message: str
    stalled: bool = True


def seconds(milliseconds: int) -> str:
    """Spell a time as the Kubernetes API wants it."""
    return time_of(milliseconds)[:19] + "Z"


def clean(text: str) -> str:
    """Make what a worker wrote harmless: one line, whole characters, at most so many bytes."""
    whole = printable(text[:MAX_REASON]).encode("utf-8", "replace")[:MAX_REASON]
    return whole.decode("utf-8", "ignore")


def condition(kind: str, is_true: bool, reason: str, message: str) -> dict[str, str]:
    """Spell a condition, not yet dated."""
    return {
        "type": kind,
        "status": "True" if is_true else "False",
        "reason": reason,
        "message": clean(message),
    }


def dated(
    condition: dict[str, str], previous: Sequence[Mapping[str, Any]], generation: int, now: int
) -> dict[str, Any]:
    """Date a condition from when its status last changed."""
    since = seconds(now)
    for before in previous:
        if (before.get("type"), before.get("status")) == (condition["type"], condition["status"]):
            since = before.get("lastTransitionTime") or since
    return {**condition, "observedGeneration": generation, "lastTransitionTime": since}
