"""The backlog of a queue and the bounds of a pool -> the desired replicas and the reason. Pure.

A pool scales up at once and in one step. It scales down only after the queue was quiet for the
whole cooldown and while no job is active: the pool cannot choose which pod ends, and it might be a
busy one.
"""

import math
from dataclasses import dataclass

from jobgroup.model.backlog import Backlog

# A delayed job counts at least this long before it is due, because a worker needs time to start.
LEAD_SECONDS = 1
# Delayed jobs that become due one after the other wake a pool no more often than this.
WAKE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fields of a pool's spec that decide its replicas, and the ceiling of the operator."""

    minimum: int
    maximum: int
    jobs_per_replica: int
    cooldown_seconds: int
    paused: bool = False
    # The most replicas that the operator allows to any pool; no limit if None.
    ceiling: int | None = None

    @property
    def horizon_seconds(self) -> int:
        """Return the seconds for which a delayed job counts as demand before it is due."""
        return max(self.cooldown_seconds, LEAD_SECONDS)


@dataclass(frozen=True, slots=True)
class Decision:
    """The desired replicas, the reason, and since when fewer replicas would be enough.

    `is_capped` is whether the pool asked for more replicas than the operator allows.
    """

    replicas: int
    reason: str
    calm_since: float | None
    requeue_after: float | None = None
    is_capped: bool = False


def desired_replicas(
    bounds: Bounds, backlog: Backlog, current: int, calm_since: float | None, now: float
) -> Decision:
    """Return the decision; `now` and `calm_since` are seconds of a monotonic clock."""
    if bounds.paused:
        return Decision(current, "the pool is paused", None)
    needed = math.ceil(backlog.demand / bounds.jobs_per_replica)
    asked = min(max(needed, bounds.minimum), bounds.maximum)
    wanted = asked if bounds.ceiling is None else min(asked, bounds.ceiling)
    reason, is_capped = _reason(bounds, backlog, needed), wanted < asked
    if is_capped:
        reason = f"{reason}; the operator allows at most {wanted} replicas"
    if wanted >= current:
        return Decision(wanted, reason, None, is_capped=is_capped)
    if backlog.active:
        busy = f"{_count(backlog.active, 'job')} active, not scaling down"
        return Decision(current, busy, None)
    since = now if calm_since is None else calm_since
    left = since + bounds.cooldown_seconds - now
    if left > 0:
        return Decision(current, f"cooling down from {current} to {wanted}", since, left)
    return Decision(wanted, reason, None, is_capped=is_capped)


def _reason(bounds: Bounds, backlog: Backlog, needed: int) -> str:
    if needed > bounds.maximum:
        jobs = _count(backlog.demand, "job")
        return f"{jobs} need {needed} replicas, maxReplicas is {bounds.maximum}"
    if backlog.demand == 0:
        calm = (
            "the queue is paused" if backlog.paused and backlog.waiting else "no job needs a worker"
        )
        return f"{calm}, minReplicas is {bounds.minimum}" if bounds.minimum else calm
    if needed < bounds.minimum:
        return f"{_count(backlog.demand, 'job')}, minReplicas is {bounds.minimum}"
    return f"{_count(backlog.demand, 'job')}, {bounds.jobs_per_replica} per replica"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def wake_in(bounds: Bounds, backlog: Backlog) -> float | None:
    """Return the seconds until the next delayed job counts as demand, if there is one."""
    if backlog.next_in is None or backlog.paused:
        return None
    return max(WAKE_SECONDS, (backlog.next_in - bounds.horizon_seconds * 1000) / 1000)
