"""Groups that fail: the longest call, the number of calls, and the time until undos are added.

All times are from the slow log of Redis. A call does the same work in every round, so the result is
the fastest round: slower rounds only show the load of the machine.
"""

import time
from dataclasses import dataclass

from bench.harness import Bench, group
from bench.rows import Row, row
from jobgroup.model.names import undo_queue

QUEUE = "alpha"
WAITING = f"bull:{QUEUE}:wait"
UNDOS = f"bull:{undo_queue(QUEUE)}:wait"
ENTRIES = 1000  # per push


@dataclass(frozen=True, slots=True)
class Course:
    """The time of each call until no work was left, and which call added the first undo."""

    created: float
    calls: list[float]
    first_undo: int


async def failing(bench: Bench) -> list[Row]:
    """Measure groups in which one member fails; all others have completed, or are waiting."""
    rows = []
    for backlog in (0, bench.sizes.backlog):
        for size in bench.sizes.failing:
            for pending in (False, True):
                case = f"{size:,} jobs {'waiting' if pending else 'done'}"
                case += f" beside {backlog:,}" if backlog else ""
                courses = [
                    await course(bench, size, pending, backlog)
                    for _ in range(min(5, bench.sizes.rounds))
                ]
                calls = [min(took) for took in zip(*(one.calls for one in courses), strict=True)]
                if not pending and not backlog:
                    created = min(one.created for one in courses)
                    rows.append(row("failing.created", created, f"{size:,} jobs"))
                rows.append(row("failing.longest-call", max(calls), case))
                rows.append(row("failing.calls", len(calls), case))
                if not pending:
                    first = sum(calls[: courses[0].first_undo + 1])
                    rows.append(row("failing.first-undo", first, case))
                    rows.append(row("failing.last-undo", sum(calls), case))
    return rows


async def course(bench: Bench, size: int, pending: bool, backlog: int) -> Course:
    """Create such a group, fail it, and settle it until no work is left."""
    await bench.redis.flushall()
    definition = group(size, [QUEUE], undo=True)
    definition["jobs"][-1] |= {"name": "fails", "queueName": "beta"}
    # Half of the foreign jobs are older than ours, half are newer: ours are in the middle.
    if pending:
        await foreign_jobs(bench, WAITING, backlog // 2)
    await bench.watch_scripts()
    (node,) = await bench.groups.add_groups([definition])
    created = max(await bench.script_ms())
    await bench.watch_scripts(False)
    assert not isinstance(node, Exception)
    if not pending:
        await bench.bullmq("work", count=size - 1, queues=[QUEUE], concurrency=50)
    await bench.bullmq("work", count=1, queues=["beta"], concurrency=1)
    await foreign_jobs(bench, WAITING, backlog // 2)
    await foreign_jobs(bench, UNDOS, backlog)

    calls: list[float] = []
    first_undo, more = -1, True
    await bench.watch_scripts()
    while more:
        ((_, settled),) = await bench.groups.store.wakeups.settle()
        assert settled is not None
        assert not isinstance(settled, Exception)
        more = settled.more
        calls.append(max(await bench.script_ms()))
        if first_undo < 0 and await bench.redis.llen(UNDOS) > backlog:
            first_undo = len(calls) - 1
    return Course(created, calls, first_undo)


async def foreign_jobs(bench: Bench, waiting: str, count: int) -> None:
    """Add ids of foreign jobs to a queue; no worker runs them, so ids are enough."""
    for first in range(0, count, ENTRIES):
        last = min(count, first + ENTRIES)
        ids = [f"{time.time_ns()}-{n}-{'x' * 16}" for n in range(first, last)]
        await bench.redis.lpush(waiting, *ids)
