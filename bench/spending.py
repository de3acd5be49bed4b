"""The CPU that a completed group takes, relative to a BullMQ flow of a parent and as many children.

The sum of Redis, a worker and, for groups, a driver in the process of the benchmark. Creating jobs
is not part of it. The scheduler counts CPU in nanoseconds, so a busy machine disturbs it less than
it disturbs times.
"""

import asyncio
import time
from pathlib import Path

from bench.harness import DATA, QUEUES, Bench, count_completed, create, over
from bench.rows import Row, row
from jobgroup import Driver

LOOK_SECONDS = 0.005


def cpu_of(pid: int) -> float:
    """Return the milliseconds of CPU that all threads of a process have used."""
    used = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(each.split()[0]) for each in used) / 1e6


async def spending(bench: Bench) -> list[Row]:
    """Run groups with a driver, and flows with as many jobs that have a parent."""
    count = bench.sizes.groups
    spent: dict[str, list[float]] = {"redis": [], "worker": [], "driver": [], "settling": []}

    async def work(jobs: int, groups: int = 0) -> tuple[float, float]:
        """Run jobs, and wait until this many groups have completed.

        Return the CPU of Redis and of the worker in milliseconds per group.
        """
        pids = (bench.server.pid, bench.bullmq.pid)
        before = [cpu_of(pid) for pid in pids]
        await bench.bullmq("work", count=jobs, queues=QUEUES, concurrency=50)
        while await count_completed(bench.redis) < groups:
            await asyncio.sleep(LOOK_SECONDS)
        redis, worker = (cpu_of(pid) - was for pid, was in zip(pids, before, strict=True))
        return redis / count, worker / count

    async def flows() -> float:
        queues = [QUEUES[0], *QUEUES]
        await bench.bullmq("flows", count=count, queues=queues, data=DATA, size=100, lanes=1)
        return sum(await work(4 * count))

    async def groups() -> float:
        await create(bench.groups, count)
        driver = Driver(bench.groups.store)
        driving = asyncio.create_task(driver.run())
        while not driver.counters.resyncs:
            await asyncio.sleep(LOOK_SECONDS)
        start = time.process_time()
        redis, worker = await work(3 * count, groups=count)
        used = (time.process_time() - start) * 1000 / count
        driving.cancel()
        await asyncio.wait([driving])
        for part, each in {"redis": redis, "worker": worker, "driver": used}.items():
            spent[part].append(each)
        return redis + worker + used

    async def settling() -> float:
        """Settle groups after all their jobs have ended."""
        await create(bench.groups, count)
        await bench.bullmq("work", count=3 * count, queues=QUEUES, concurrency=50)
        before = cpu_of(bench.server.pid)
        await Driver(bench.groups.store).drain()
        spent["settling"].append((cpu_of(bench.server.pid) - before) * 1000 / count)
        return 0

    took = await bench.in_turn({"flows": flows, "groups": groups, "settling": settling})
    return [
        row("spending.over-flows", over(took["groups"], took["flows"])),
        row("spending.redis", spent["redis"]),
        row("spending.worker", spent["worker"]),
        row("spending.driver", spent["driver"]),
        row("spending.flow", took["flows"]),
        row("spending.settling", spent["settling"]),
    ]
