"""How many workers a queue needs: its backlog and a pool's bounds -> a number and why. Pure.

Up at once and in one step, for work waits. Down only when the queue has been calm for the whole
cooldown and no job is active: whoever shrinks a workload does not choose which pod goes, and it may
be one at work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# A delayed job counts at least this long before it is due, for a worker takes its time to start.
LEAD_SECONDS = 1
# Delayed jobs that come due one after the other wake a pool no more often than this.
WAKE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a pool asks for."""

    minimum: int
    maximum: int
    jobs_per_replica: int
    cooldown_seconds: int
    paused: bool = False

    @property
    def horizon_seconds(self) -> int:
        """Return how long before it is due a delayed job counts."""
        return max(self.cooldown_seconds, LEAD_SECONDS)


@dataclass(frozen=True, slots=True)
class Backlog:
    """One queue at one moment; `next_in` is the milliseconds until a job is due that does not count
    as due yet.
    """

    known: bool
    paused: bool
    waiting: int
    prioritized: int
    active: int
    delayed: int
    due: int
    next_in: int | None
    event: str

    @classmethod
    def parse(cls, row: Sequence[Any]) -> "Backlog":
        """Read one row of read_backlog.lua."""
        known, paused, waiting, prioritized, active, delayed, due, following, event = row
        return cls(
            known > 0,
            paused > 0,
            waiting,
            prioritized,
            active,
            delayed,
            due,
            int(following) if following else None,
            event,
        )

    @property
    def demand(self) -> int:
        """Return the jobs that need a worker now or soon.

        A paused queue hands nothing out. Active jobs count even if their worker is dead: a worker
        that is started finds and revives them.
        """
        runnable = 0 if self.paused else self.waiting + self.prioritized + self.due
        return runnable + self.active


@dataclass(frozen=True, slots=True)
class Decision:
    """How many replicas there are to be, why, and since when the pool could do with fewer."""

    replicas: int
    reason: str
    calm_since: float | None
    look_again_in: float | None = None


def desired_replicas(
    bounds: Bounds, backlog: Backlog, current: int, calm_since: float | None, now: float
) -> Decision:
    """Decide; `now` and `calm_since` are seconds of a clock that never jumps."""
    if bounds.paused:
        return Decision(current, "the pool is paused", None)
    needed = math.ceil(backlog.demand / bounds.jobs_per_replica)
    wanted = min(max(needed, bounds.minimum), bounds.maximum)
    if wanted >= current:
        return Decision(wanted, _why(bounds, backlog, needed), None)
    if backlog.active:
        busy = f"{_count(backlog.active, 'job')} active, and none may be killed"
        return Decision(current, busy, None)
    since = now if calm_since is None else calm_since
    left = since + bounds.cooldown_seconds - now
    if left > 0:
        return Decision(current, f"cooling down from {current} to {wanted}", since, left)
    return Decision(wanted, _why(bounds, backlog, needed), None)


def _why(bounds: Bounds, backlog: Backlog, needed: int) -> str:
    if needed > bounds.maximum:
        return f"{_count(backlog.demand, 'job')} would need {needed}, at most {bounds.maximum}"
    if backlog.demand == 0:
        calm = "the queue is paused" if backlog.paused and backlog.waiting else "nothing to do"
        return f"{calm}, at least {bounds.minimum}" if bounds.minimum else calm
    if needed < bounds.minimum:
        return f"{_count(backlog.demand, 'job')}, at least {bounds.minimum}"
    return f"{_count(backlog.demand, 'job')}, {bounds.jobs_per_replica} a replica"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def wake_in(bounds: Bounds, backlog: Backlog) -> float | None:
    """Return the seconds until a delayed job comes within the horizon, and so counts as demand."""
    if backlog.next_in is None or backlog.paused:
        return None
    return max(WAKE_SECONDS, (backlog.next_in - bounds.horizon_seconds * 1000) / 1000)
