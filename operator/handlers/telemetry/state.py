"""The metrics of Prometheus that are looked up at each scrape; docs/metrics.md describes each.

All of it is in the memory of this process: a scrape reads nothing from Redis or the API server.
Every replica exports the numbers of groups in Redis, because groups move on without a leader. Only
the leader exports what it reads from Kubernetes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from handlers.kube.refs import Ref
from handlers.kube.refusals import NONE_REFUSED
from handlers.telemetry.redis_probe import RedisProbe
from jobgroup.driver import Counters
from jobgroup.model.clock import now_ms
from jobgroup.model.snapshot import ENDED, STATES, Totals
from jobgroup.resource.kinds import KINDS

UNFINISHED = [state for state in STATES if state not in ENDED]
WRITES = ("delete", "event", "lease", "metadata", "scale", "status")
# Exported from zero: Prometheus does not see an increase when a series starts above zero.
_NOT_REFUSED = {(kind.name, code): 0 for kind in KINDS for code in (400, 403, 413, 422)}

PoolStatuses = Iterable[tuple[Ref, Mapping[str, Any]]]
CountsByNamespace = Mapping[str, Mapping[str, int]]

# The state of a JobGroup whose group is not created yet.
NO_STATE = "NONE"
# Further namespaces are counted together, so that the number of series has a limit.
MAX_NAMESPACES = 200
# Not a valid name of a namespace.
OTHER = "_other"


@dataclass(frozen=True, slots=True, eq=False)  # a registry hashes collectors by identity
class StateCollector(Collector):
    """Collects from the parts of the operator."""

    is_leader: Callable[[], bool]
    is_reviewing: Callable[[], bool]
    writes: Mapping[str, int]
    refused: Mapping[tuple[str, int], int]
    refusals: Mapping[tuple[str, str, int], int]
    watch_age: Callable[[], float]
    driver: Counters
    pools: Callable[[], PoolStatuses]
    redis: RedisProbe
    namespaces: Callable[[], CountsByNamespace]
    left: Callable[[], int]

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        is_leader = self.is_leader()
        yield _gauge("jobgroup_leader", "1 on the replica that leads, 0 on others.", is_leader)
        text = "1 on the replica whose driver reviews the groups, 0 on others."
        yield _gauge("jobgroup_reviewing", text, self.is_reviewing())
        yield _gauge("jobgroup_redis_up", "1 while Redis answers.", self.redis.is_up)
        writes = CounterMetricFamily(
            "jobgroup_api_writes", "Writes sent to the Kubernetes API server.", labels=["what"]
        )
        for what, count in {**dict.fromkeys(WRITES, 0), **self.writes}.items():
            writes.add_metric([what], count)
        yield writes
        refused = CounterMetricFamily(
            "jobgroup_status_refused",
            "Statuses that the Kubernetes API server refused to store.",
            labels=["kind", "code"],
        )
        for (kind, code), count in {**_NOT_REFUSED, **self.refused}.items():
            refused.add_metric([kind, str(code)], count)
        yield refused
        refusals = CounterMetricFamily(
            "jobgroup_api_refused",
            "Requests that the Kubernetes API server refused.",
            labels=["verb", "resource", "code"],
        )
        for (verb, resource, answer), count in {**NONE_REFUSED, **self.refusals}.items():
            refusals.add_metric([verb, resource, str(answer)], count)
        yield refusals
        yield CounterMetricFamily(
            "jobgroup_resync_repairs",
            "Groups without a wake-up that a resync of the driver found and moved on.",
            self.driver.repairs,
        )
        yield _gauge(
            "jobgroup_watch_age_seconds",
            "Seconds since the last watch event of a JobGroup or WorkerPool.",
            self.watch_age() if is_leader else None,
        )
        yield _gauge(
            "jobgroup_left_objects",
            "JobGroups that are left to the releases that claimed them.",
            self.left() if is_leader else None,
        )
        yield from _group_metrics(self.redis.totals, now_ms())
        yield _namespace_metric(self.namespaces() if is_leader else {})
        yield from _pool_metrics(self.pools() if is_leader else ())


def _group_metrics(totals: Totals | None, now: int) -> Iterator[Metric]:
    groups = GaugeMetricFamily(
        "jobgroup_groups", "Groups in Redis, without those on the wake-up list.", labels=["state"]
    )
    oldest = GaugeMetricFamily(
        "jobgroup_oldest_unfinished_seconds",
        "Seconds since the oldest group in this state was created, or its compensation started.",
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


def _namespace_metric(counts: CountsByNamespace) -> Metric:
    groups = GaugeMetricFamily(
        "jobgroup_namespace_groups",
        "JobGroups by namespace, if METRICS_BY_NAMESPACE is true.",
        labels=["group_namespace", "state"],
    )
    for namespace, states in bounded(counts).items():
        for state in (NO_STATE, *STATES):
            groups.add_metric([namespace, state], states.get(state, 0))
    return groups


def bounded(counts: CountsByNamespace) -> CountsByNamespace:
    """Return the counts of the first MAX_NAMESPACES namespaces, and the sum of all others."""
    named = dict(islice(counts.items(), MAX_NAMESPACES))
    if len(counts) > len(named):
        named[OTHER] = sum(map(Counter, islice(counts.values(), MAX_NAMESPACES, None)), Counter())
    return named


def _pool_metrics(pools: PoolStatuses) -> Iterator[Metric]:
    labels = ["pool_namespace", "pool"]
    backlog = GaugeMetricFamily(
        "jobgroup_pool_backlog", "Jobs that need a worker of a pool.", labels=labels
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
    """Return a gauge without labels, and without a sample if there is no value."""
    return GaugeMetricFamily(name, text, value)
