"""Everything that the benchmarks measure, with its bar. rows.py says how to add a row.

A bar is a limit that the project sets for itself. "A, over B" means A divided by B, both of the
same run.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    """What a row measures."""

    what: str
    unit: str = "x"
    at_least: float | None = None
    at_most: float | None = None
    # A number that does not vary from run to run.
    exact: bool = False

    @property
    def bar(self) -> str:
        """Return the bar as text."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"


CREATION = {
    "over-flows": Measure("groups created per second, over BullMQ flows", at_least=2),
    "over-flows-one-batch": Measure("the same, one batch at a time"),
    "over-flows-undos": Measure("the same, each job with an undo"),
    "over-socket": Measure("groups created per second, over a bare socket", at_least=0.6),
    "over-socket-one-batch": Measure("the same, one batch at a time"),
}
SETTLING = {
    "jobs-in-groups": Measure("jobs a worker runs per second, in groups over bare"),
    "jobs-with-driver": Measure("the same, with a driver beside it"),
    "jobs-in-flows": Measure("the same, in BullMQ flows"),
    "over-worker": Measure("groups a driver settles per second, over the worker", at_least=1),
    "delay": Measure("delay of the driver, over the worker's time", at_most=0.05),
    "backlog": Measure("longest wake-up list, over the number of groups"),
    "wakeups": Measure("wake-ups per successful group", "", at_most=1, exact=True),
    "calls": Measure("script calls per successful group", "", at_most=2),
    "calls-alone": Measure("calls that settle a group which ends alone", "", at_most=2, exact=True),
}
SPENDING = {
    "over-flows": Measure(
        "CPU of Redis, worker and driver per group of 3, over a flow of a parent and 3",
        at_most=0.95,
    ),
    "redis": Measure("CPU of Redis per group of 3", "ms"),
    "worker": Measure("CPU of the worker per group of 3", "ms"),
    "driver": Measure("CPU of the driver per group of 3", "ms"),
    "flow": Measure("CPU of Redis and worker per flow of a parent and 3", "ms"),
    "settling": Measure("CPU of Redis that settles a completed group of 3", "us"),
}
FAILING = {
    "created": Measure("time to create the group", "ms", at_most=50),
    "longest-call": Measure("longest call that gives a group up", "ms", at_most=50),
    "calls": Measure("calls until no work is left", "", exact=True),
    "first-undo": Measure("time until the first undo is added", "ms", at_most=50),
    "last-undo": Measure("time until the last undo is added", "ms"),
}
DRIVING = {
    "delay": Measure("from a job's end to its group's, median", "ms"),
    "delay-p99": Measure("the same, 99th percentile", "ms", at_most=50),
    "delay-longest": Measure("the same, longest", "ms"),
    "pause": Measure("longest time in which a group had to end and none did", "ms"),
    "pause-added": Measure("the same, longer than beside no other group by", "ms", at_most=50),
    "late-starts": Measure(
        "groups of 3 whose third job starts after the first failed", "%", at_most=10
    ),
}
NOTICING = {
    "drained": Measure("until a drained job is noticed, longest", "s", at_most=5),
    "deleted": Measure("until a deleted hash is noticed, longest", "s", at_most=45),
    "retried": Measure("until a bulk retry of a failed job is noticed, longest", "s", at_most=5),
}
GROWTH = {
    "create": Measure("cost per unit of creating, over that at 100 units", at_most=1.5),
    "give-up": Measure("cost per unit of giving up, over that at 100 units", at_most=1.5),
}
KINDS = {
    "create": Measure(
        "groups created per second, over one server with as many replicas", at_least=0.9
    ),
    "settle": Measure("groups settled per second, over the same", at_least=0.75),
}
MEMORY = {
    "group": Measure("memory of a waiting group of 3, over 3 bare jobs", at_most=2.1, exact=True),
    "group-undos": Measure("the same, each job with an undo", at_most=2.45, exact=True),
    "group-redis-8": Measure("a waiting group of 3 on Redis 8", at_most=2.3, exact=True),
    "group-undos-redis-8": Measure("the same, each job with an undo", at_most=2.7, exact=True),
    "group-named-undos": Measure("with three undos that differ by name", exact=True),
    "resource": Measure("a waiting group of a JobGroup, whose id is a UUID", exact=True),
    "resource-undos": Measure("the same, each job with an undo", exact=True),
    "flow": Measure("memory of a BullMQ flow of 3, over 3 bare jobs", exact=True),
    "larger-flow": Measure("memory of a flow of a parent and 3, over 3 bare jobs", exact=True),
    "ended": Measure("memory of a COMPLETED group, over 3 completed jobs", exact=True),
    "ended-undos": Measure("the same, each job with an undo", exact=True),
    "tiny": Measure('a waiting group whose data are {"n":1}, over such jobs', exact=True),
    "tiny-flow": Measure("a flow of a parent and 3 with such data, over such jobs", exact=True),
    "listpack-512": Measure(
        "a waiting group with hash-max-listpack-value 512, over the default of 64", exact=True
    ),
    "listpack-512-tiny": Measure("the same with tiny data", exact=True),
    "bare": Measure("memory of 3 bare jobs", "bytes", exact=True),
    "bare-tiny": Measure("memory of 3 tiny bare jobs", "bytes", exact=True),
    "bare-ended": Measure("memory of 3 completed bare jobs", "bytes", exact=True),
}
OPERATING = {
    # The first group of a burst finds an idle operator, which reports ACTIVE at once.
    "writes": Measure("API writes per group of a burst that succeeds", "", at_most=2.01),
    "writes-twin": Measure("the same with kopf's create and delete handlers", ""),
    "over-patches": Measure(
        "4 x groups per second, over bare patches of two fields", at_least=0.75
    ),
    "over-patches-twin": Measure("the same with kopf's create and delete handlers"),
    "over-whole-patches": Measure("4 x groups per second, over bare patches of a whole status"),
    "over-whole-patches-twin": Measure("the same with kopf's create and delete handlers"),
    "cpu-over-twin": Measure("CPU per group, over kopf's create and delete handlers", at_most=1),
    "cpu": Measure("CPU of the operator per group", "ms", at_most=3.8),
    "to-redis": Measure(
        "from an object's creation to its jobs in Redis, median", "ms", at_most=100
    ),
    "to-active": Measure(
        "from an object's creation to ACTIVE in its status, median", "ms", at_most=100
    ),
    "to-status": Measure(
        "from the end in Redis to the end in the status, median", "ms", at_most=200
    ),
    "start": Measure(
        "from start to idle, beside finished groups and with some to run", "s", at_most=14
    ),
    "start-writes": Measure("writes to finished groups after a start", "", at_most=0, exact=True),
    "memory": Measure("memory of the operator a minute after the start", "MB", at_most=100),
    "memory-peak": Measure("the same, at its peak", "MB"),
}
PLANNING = {
    "longest-step": Measure(
        "longest CPU of a reconcile between two turns of other tasks", "ms", at_most=10
    ),
}
RECOVERING = {
    "failover": Measure(
        "from a fatal error of the leader to another leader, longest", "s", at_most=2
    ),
    "leaderless": Measure(
        "longest time without a group's end after the leader is killed among 200 that are undone",
        "s",
        at_most=2,
    ),
    "silence": Measure("from silence of a watch to a new object's end", "s", at_most=90),
}
SCALING = {
    "wake": Measure("undo added to workload scaled, median", "ms", at_most=1000),
    "wake-p99": Measure("the same, 99th percentile", "ms", at_most=1000),
    "writes": Measure("scale writes per burst of 50 undos", "", at_most=1, exact=True),
    "rest-writes": Measure("writes while all pools are idle", "", at_most=0, exact=True),
    "rest-cpu": Measure("CPU while all pools are idle, share of a core", "%", at_most=1),
    "corrected": Measure(
        "replicas set to 0 while jobs wait: corrected after, longest", "s", at_most=10
    ),
}
FAIRNESS = {
    "saga": Measure("a saga beside large groups of another tenant, over without", at_most=2),
    "saga-longest": Measure("the same, longest", "ms", at_most=1000),
    "saga-bare": Measure("a bare write and its watch event beside them, over without"),
    "saga-bare-longest": Measure("the same, longest", "ms"),
    "saga-calm": Measure("a saga without large groups", "ms"),
    "pool": Measure("a workload scaled beside pools of another tenant, over without", at_most=2),
    "pool-longest": Measure("the same, longest", "ms", at_most=1000),
    "pool-bare": Measure("a bare write and its watch event beside them, over without"),
    "pool-bare-longest": Measure("the same, longest", "ms"),
    "pool-calm": Measure("a workload scaled without other pools", "ms"),
}
CATALOGUE = {
    f"{part}.{name}": measure
    for part, measures in {
        "creation": CREATION,
        "settling": SETTLING,
        "spending": SPENDING,
        "failing": FAILING,
        "driving": DRIVING,
        "noticing": NOTICING,
        "growth": GROWTH,
        "kinds": KINDS,
        "memory": MEMORY,
        "operating": OPERATING,
        "planning": PLANNING,
        "recovering": RECOVERING,
        "scaling": SCALING,
        "fairness": FAIRNESS,
    }.items()
    for name, measure in measures.items()
}
