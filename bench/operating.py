"""The operator on a real API server: the cost and the latency of a group.

It is compared with a twin that does the same work with kopf's own create and delete handlers
(twin.py), and with bare patches of a status, twenty at a time.
"""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench.field import FOLDER, QUEUE, Field, cpu_of, in_flight, memory_of, ready, the_field
from bench.harness import Bench
from bench.rows import Row, row
from bench.sizes import Sizes
from handlers.kube.client import MERGE
from testbed.servers.operator import MAIN, start_operator

TWIN = Path(__file__).with_name("twin.py")
# Each patch sets another progress, so that each is a write.
TWO_FIELDS = {"observedGeneration": 1, "progress": ""}
# The writes of a group that succeeds and is not part of a burst: creation, claim, status ACTIVE,
# status COMPLETED.
WRITES = 4
ROUNDS = 3


@dataclass(frozen=True)
class Run:
    """The results for one operator: writes, CPU and groups per second, and latencies."""

    writes: float
    rate: float
    cpu: float
    to_redis: float
    to_active: float
    to_status: float


@dataclass(frozen=True)
class Round:
    """The results of both operators, and the bare patches per second before and after them."""

    twin: Run
    ours: Run
    two_fields: float
    whole: float


async def operating(bench: Bench) -> list[Row]:
    """Measure both operators and bare patches in several rounds; return the medians."""
    count = bench.sizes.objects
    async with the_field() as field:
        sample = await field.sample()
        # The speed of the machine and of the API server varies, so the result is the median.
        rounds = []
        for _ in range(ROUNDS):
            before = await bare(field, count, sample)
            twin = await through(field, count, TWIN, "twin")
            ours = await through(field, count, MAIN, "operator")
            after = await bare(field, count, sample)
            rounds.append(Round(twin, ours, *map(mean, zip(before, after, strict=True))))
        resting = await at_rest(field, sample, bench.sizes)

    def each(measure: Callable[[Round], float]) -> list[float]:
        return [measure(one) for one in rounds]

    return [
        row("operating.writes", each(lambda r: r.ours.writes)),
        row("operating.writes-twin", each(lambda r: r.twin.writes)),
        row("operating.over-patches", each(lambda r: WRITES * r.ours.rate / r.two_fields)),
        row("operating.over-patches-twin", each(lambda r: WRITES * r.twin.rate / r.two_fields)),
        row("operating.over-whole-patches", each(lambda r: WRITES * r.ours.rate / r.whole)),
        row("operating.over-whole-patches-twin", each(lambda r: WRITES * r.twin.rate / r.whole)),
        row("operating.cpu-over-twin", each(lambda r: r.ours.cpu / r.twin.cpu)),
        row("operating.cpu", each(lambda r: 1000 * r.ours.cpu)),
        row("operating.to-redis", each(lambda r: r.ours.to_redis)),
        row("operating.to-active", each(lambda r: r.ours.to_active)),
        row("operating.to-status", each(lambda r: r.ours.to_status)),
        *resting,
    ]


async def bare(field: Field, count: int, sample: dict[str, Any]) -> tuple[float, float]:
    """Return the possible status patches per second: of two fields, and of a whole status."""
    return await bare_writes(field, count, TWO_FIELDS), await bare_writes(
        field, count, sample["status"]
    )


async def bare_writes(field: Field, count: int, status: dict[str, Any]) -> float:
    """Return how many status patches per second the API server accepts from an operator.

    Send as many patches as this number of groups needs writes. A shorter burst would give random
    results, because the API server collects garbage about once a second.
    """
    names = [f"bare-{n}" for n in range(count)]
    await field.make(names)

    async def one(patch: tuple[int, str]) -> None:
        number, name = patch
        changed = {"status": {**status, "progress": f"{number}/{WRITES}"}}
        await field.peer.request("PATCH", f"{FOLDER}/{name}/status", changed, MERGE)

    patches = [(number, name) for number in range(WRITES) for name in names]
    start = time.perf_counter()
    await in_flight(one, patches)
    took = time.perf_counter() - start
    await field.clear()
    return len(patches) / took


async def through(field: Field, count: int, script: Path, name: str) -> Run:
    """Run groups with an operator: first all in one burst, then some one by one."""
    with start_operator(
        field.folder, field.api.operator, field.redis.url, "bull", name, script
    ) as process:
        await ready(field, process)
        names = [f"{name}-{n}" for n in range(count)]
        writes, cpu, start = field.metrics(), cpu_of(process), time.perf_counter()
        await field.make(names)
        await field.ended(names)
        took = time.perf_counter() - start
        run = {"cpu": cpu_of(process) - cpu, "writes": field.metrics() - writes}
        created, active, told = await latencies(field, names[: count // 5])
    await field.clear()
    return Run(run["writes"] / count, count / took, run["cpu"] / count, created, active, told)


async def latencies(field: Field, sample: list[str]) -> tuple[float, float, float]:
    """Create groups one by one; return the median times to their jobs, to ACTIVE, to their end."""
    names = [f"{name}-alone" for name in sample]
    told: dict[str, float] = {}
    # The first status of the twin may be COMPLETED.
    active: dict[str, float] = {}
    watching = asyncio.create_task(note_ends(field, set(names), told, active))
    await asyncio.sleep(0.5)
    for name in names:
        await field.make([name])
        await asyncio.sleep(0.05)
    await watching
    to_redis, to_status = [], []
    to_active = [(active[name] - field.applied[name]) * 1000 for name in active]
    for name in names:
        item = await field.admin.request("GET", f"{FOLDER}/{name}")
        group = await field.client.hgetall(f"bull:{QUEUE}:groups:{item['metadata']['uid']}")
        to_redis.append(float(group["createdAt"]) - field.applied[name] * 1000)
        to_status.append(told[name] * 1000 - float(group["finishedAt"]))
    return median(to_redis), median(to_active or [nan]), median(to_status)


async def note_ends(
    field: Field, wanted: set[str], told: dict[str, float], active: dict[str, float]
) -> None:
    """Watch the objects, and record when the status of each is first COMPLETED, and ACTIVE."""
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "get", "jobgroups", "--watch", "--no-headers"),
        *("-o", "custom-columns=NAME:.metadata.name,STATE:.status.state"),
        env={**os.environ, "PATH": f"{field.api.kubectl_path.parent}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None, "started with a pipe"
    try:
        while wanted - told.keys():
            name, _, state = (await process.stdout.readline()).decode().partition(" ")
            if name in wanted and state.strip() in ("ACTIVE", "COMPLETED"):
                (active if state.strip() == "ACTIVE" else told).setdefault(name, time.time())
    finally:
        process.kill()
        await process.wait()


async def at_rest(field: Field, sample: dict[str, Any], sizes: Sizes) -> list[Row]:
    """Start the operator with many objects, most of them finished; measure until it is idle."""
    finished = [f"done-{n}" for n in range(sizes.finished)]
    running = [f"runs-{n}" for n in range(sizes.running)]
    await field.make_ended(sample, finished)
    await field.make(running)
    before, start = await field.versions(finished), time.perf_counter()
    with start_operator(
        field.folder, field.api.operator, field.redis.url, "bull", "rested"
    ) as process:
        await field.ended(running)
        idle = time.perf_counter() - start
        await asyncio.sleep(max(0.0, sizes.rest - idle))
        resident, peak = memory_of(process)
    after = await field.versions(finished)
    return [
        row("operating.start", idle),
        row("operating.start-writes", len(after - before)),
        row("operating.memory", resident),
        row("operating.memory-peak", peak),
    ]
