"""The metrics of Prometheus that this process counts; docs/metrics.md describes each.

Counters and histograms start at zero with the process. Values that are looked up at each scrape are
in `state`.
"""

import time

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

from jobgroup.model.snapshot import ENDED, STATES, Settled
from jobgroup.store.observer import Observer
from jobgroup.store.scripts import FOLDER

# Do not export the series `<name>_created` of each metric: nothing uses it.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

# Of groups: some end within a second, some wait for days.
DURATIONS = (0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400)
LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics(Observer):
    """Counts what the store and the watch report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._watch_event_at = time.monotonic()
        ProcessCollector(registry=registry)
        self._transitions = Counter(
            "jobgroup_transitions",
            "Groups that this process moved into a state.",
            ["state"],
            registry=registry,
        )
        self._durations = Histogram(
            "jobgroup_duration_seconds",
            "Seconds from the creation of a group to its end.",
            ["state"],
            buckets=DURATIONS,
            registry=registry,
        )
        self._undos = Counter(
            "jobgroup_undos",
            "Undos that ended.",
            ["outcome"],
            registry=registry,
        )
        self._released = Counter(
            "jobgroup_released_groups",
            "Groups of deleted namespaces that this process released or removed.",
            ["step"],
            registry=registry,
        )
        self._scripts = Histogram(
            "jobgroup_script_seconds",
            "Seconds from sending the calls of a Lua script to Redis until its answer.",
            ["script"],
            buckets=LATENCIES,
            registry=registry,
        )
        self._calls = Counter(
            "jobgroup_script_calls",
            "Calls of a Lua script, including those that wait for a wake-up.",
            ["script"],
            registry=registry,
        )
        # Export zeros: Prometheus does not see an increase when a series starts above zero.
        for state in STATES:
            self._transitions.labels(state)
        for ended in ENDED:
            self._durations.labels(ended)
        for outcome in ("completed", "failed", "resolved"):
            self._undos.labels(outcome)
        for step in ("released", "removed"):
            self._released.labels(step)
        for script in FOLDER.glob("*.lua"):
            self._scripts.labels(script.stem)
            self._calls.labels(script.stem)

    def record_watch_event(self) -> None:
        """Record that the watch started, or delivered an event."""
        self._watch_event_at = time.monotonic()

    def watch_age(self) -> float:
        """Return the seconds since the last watch event."""
        return time.monotonic() - self._watch_event_at

    def script_answered(self, script: str, calls: int, seconds: float | None) -> None:
        """Count the calls of a script, and the time of a round trip without a wait."""
        self._calls.labels(script).inc(calls)
        if seconds is not None:
            self._scripts.labels(script).observe(seconds)

    def groups_created(self, groups: int) -> None:
        """Count new groups."""
        self._transitions.labels("ACTIVE").inc(groups)

    def group_settled(self, settled: Settled) -> None:
        """Count the states that a group entered, and the undos that ended."""
        for state in settled.entered:
            self._transitions.labels(state).inc()
        if settled.ran_for is not None:
            self._durations.labels(settled.state).observe(max(0.0, settled.ran_for / 1000))
        # An undo that failed and was then retried manually counts under both outcomes.
        counts = {
            "completed": settled.undone,
            "failed": settled.undo_failed,
            "resolved": settled.undo_resolved,
        }
        for outcome, count in counts.items():
            if count > 0:
                self._undos.labels(outcome).inc(count)

    def group_released(self) -> None:
        """Count a group that continues without its object."""
        self._released.labels("released").inc()

    def released_group_removed(self) -> None:
        """Count a released group that was removed."""
        self._released.labels("removed").inc()
