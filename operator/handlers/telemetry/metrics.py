"""What /metrics tells; docs/metrics.md explains each.

Counters and histograms are kept as things happen and begin at zero with the process. All else is
looked up when somebody asks, in what the process remembers anyway: a scrape reads nothing from
Redis or the API server. What only the leader knows, only the leader tells: a sum over replicas is
right.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from handlers.cluster import Ref
from jobgroup.observer import Observer
from jobgroup.queues import now_ms
from jobgroup.scripts import FOLDER
from jobgroup.snapshot import ENDED, STATES, GroupState, State, Totals

# When each series began is of no use here, and would be a series more for each.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

UNFINISHED = [state for state in STATES if state not in ENDED]
# Of groups: some end within a second, some wait for days.
DURATIONS = (0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400)
WRITES = ("delete", "event", "lease", "metadata", "scale", "status")
LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics(Observer, Collector):
    """All that is counted, and where to look the rest up."""

    def __init__(self) -> None:
        self.leads: Callable[[], bool] = lambda: False
        self.writes: Mapping[str, int] = {}
        self.repairs: Callable[[], int] = lambda: 0
        self.pools: Callable[[], Iterable[tuple[Ref, Mapping[str, Any]]]] = lambda: ()
        # What Redis last said, or nothing when it did not answer.
        self.redis_answers = False
        self.totals: Totals | None = None
        self._watched_at = time.monotonic()

        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        self._transitions = Counter(
            "jobgroup_transitions",
            "Groups that this process moved into a state.",
            ["state"],
            registry=self.registry,
        )
        self._durations = Histogram(
            "jobgroup_duration_seconds",
            "Seconds from a group's creation to its end.",
            ["state"],
            buckets=DURATIONS,
            registry=self.registry,
        )
        self._undos = Counter(
            "jobgroup_undos",
            "Undos that ended.",
            ["outcome"],
            registry=self.registry,
        )
        self._scripts = Histogram(
            "jobgroup_script_seconds",
            "Seconds until Redis had answered calls of a script and what was sent with them.",
            ["script"],
            buckets=LATENCIES,
            registry=self.registry,
        )
        # What has not happened yet is told as zero, or its first time would not be seen as a rise.
        for state in STATES:
            self._transitions.labels(state)
        for ended in ENDED:
            self._durations.labels(ended)
        for outcome in ("completed", "failed"):
            self._undos.labels(outcome)
        for script in FOLDER.glob("*.lua"):
            self._scripts.labels(script.stem)

    def heard(self) -> None:
        """Note that the watch brought something, or that it begins."""
        self._watched_at = time.monotonic()

    def ran(self, script: str, seconds: float) -> None:
        """Count the time that a script took."""
        self._scripts.labels(script).observe(seconds)

    def created(self, groups: int) -> None:
        """Count new groups."""
        self._transitions.labels("ACTIVE").inc(groups)

    def moved(
        self, before: State, group: GroupState, undone: int = 0, undo_failed: int = 0
    ) -> None:
        """Count the states that a group went through, and the undos that ended."""
        for state in passed(before, group):
            self._transitions.labels(state).inc()
        if group.finished_at and before not in ENDED:
            seconds = (group.finished_at - group.created_at) / 1000
            self._durations.labels(group.state).observe(max(0.0, seconds))
        # An undo that failed and was retried by hand counts under both, and is never taken back.
        for outcome, count in (("completed", undone), ("failed", undo_failed)):
            if count > 0:
                self._undos.labels(outcome).inc(count)

    def collect(self) -> Iterator[Metric]:
        """Look up all that is not counted here."""
        leads = self.leads()
        yield _gauge("jobgroup_leader", "1 on the replica that leads, 0 on others.", leads)
        yield _gauge("jobgroup_redis_up", "1 while Redis answers.", self.redis_answers)
        writes = CounterMetricFamily(
            "jobgroup_api_writes", "Writes sent to the Kubernetes API server.", labels=["what"]
        )
        for what, count in {**dict.fromkeys(WRITES, 0), **self.writes}.items():
            writes.add_metric([what], count)
        yield writes
        yield CounterMetricFamily(
            "jobgroup_resync_repairs",
            "Groups that nobody would have woken, found by a resync and moved on.",
            self.repairs(),
        )
        yield _gauge(
            "jobgroup_watch_age_seconds",
            "Seconds since the watch last brought news of a JobGroup or WorkerPool.",
            time.monotonic() - self._watched_at if leads else None,
        )
        yield from _of_groups(self.totals if leads else None, now_ms())
        yield from _of_pools(self.pools() if leads else ())


def passed(before: State, group: GroupState) -> list[State]:
    """Return the states that a group went through in one call, in order."""
    if group.state == before:
        return []
    hidden = before == "ACTIVE" and group.ended and group.was_compensating
    return ["COMPENSATING", group.state] if hidden else [group.state]


def _of_groups(totals: Totals | None, now: int) -> Iterator[Metric]:
    groups = GaugeMetricFamily(
        "jobgroup_groups", "Groups in Redis, but for those just woken.", labels=["state"]
    )
    oldest = GaugeMetricFamily(
        "jobgroup_oldest_unfinished_seconds",
        "Seconds since the oldest group in this state was made, or began to be undone.",
        labels=["state"],
    )
    wakeups = _gauge("jobgroup_wakeups", "Groups on the wake-up list.")
    lag = _gauge(
        "jobgroup_wakeup_lag_seconds",
        "Seconds that the first group on the wake-up list has waited there.",
    )
    if totals:
        for state in STATES:
            groups.add_metric([state], totals.groups[state])
        for state in UNFINISHED:
            since = totals.oldest.get(state, now)
            oldest.add_metric([state], max(0, now - since) / 1000)
        wakeups.add_metric([], totals.wakeups)
        lag.add_metric([], totals.waited / 1000)
    yield from (groups, oldest, wakeups, lag)


def _of_pools(pools: Iterable[tuple[Ref, Mapping[str, Any]]]) -> Iterator[Metric]:
    labels = ["pool_namespace", "pool"]
    backlog = GaugeMetricFamily(
        "jobgroup_pool_backlog", "Jobs that need one of a pool's workers.", labels=labels
    )
    replicas = GaugeMetricFamily(
        "jobgroup_pool_replicas", "Replicas of the workload that a pool scales.", labels=labels
    )
    for ref, status in pools:
        for family, field in ((backlog, "backlog"), (replicas, "replicas")):
            if field in status:
                family.add_metric([ref.namespace, ref.name], status[field])
    yield from (backlog, replicas)


def _gauge(name: str, text: str, value: float | None = None) -> GaugeMetricFamily:
    """Return a gauge without labels, and without a value if there is none to tell."""
    return GaugeMetricFamily(name, text, value)
