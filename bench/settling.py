"""Sagas settled per second, and the cost of the ledger for a worker."""

import asyncio
import time
from collections import Counter

from bench.harness import DATA, QUEUES, Bench, count_completed, create, over
from bench.rows import Row, row
from jobgroup import Driver, JobGroups, Store
from jobgroup.model import names
from jobgroup.store.connection import connect
from jobgroup.store.observer import Observer

LOOK_SECONDS = 0.02
# Groups that run one after the other.
ALONE = 20


class Calls(Observer):
    """The number of calls of each script."""

    def __init__(self) -> None:
        self.of = Counter[str]()

    def script_answered(self, script: str, calls: int, seconds: float | None) -> None:
        self.of[script] += calls


async def settling(bench: Bench) -> list[Row]:
    """Run the same jobs in one worker: without groups, in groups, with a driver, in flows."""
    count = bench.sizes.groups
    what = {"count": count, "queues": QUEUES, "data": DATA}
    seen: dict[str, list[float]] = {
        "speed": [],
        "lag": [],
        "backlog": [],
        "wakeups": [],
        "calls": [],
        "alone": [],
    }

    async def work() -> float:
        return await bench.bullmq("work", count=3 * count, queues=QUEUES, concurrency=50)

    async def bare() -> float:
        await bench.bullmq("jobs", **what)
        return await work()

    async def flows() -> float:
        await bench.bullmq("flows", **what, size=100, lanes=1)
        return await work()

    async def ledger() -> float:
        await create(bench.groups, count)
        took = await work()
        start = time.perf_counter()
        await Driver(bench.groups.store).drain()
        seen["speed"].append(took / (time.perf_counter() - start))
        return took

    async def driven() -> float:
        calls = Calls()
        store = Store(connect(bench.server.url), observer=calls)
        async with JobGroups(store):
            driver = Driver(store)
            driving = asyncio.create_task(driver.run())
            while not driver.counters.resyncs:
                await asyncio.sleep(0)
            await create(bench.groups, count)
            calls.of.clear()
            working = asyncio.create_task(work())
            backlog = 0
            while not working.done():
                backlog = max(backlog, await bench.redis.llen(names.wakeups_key("bull")))
                await asyncio.sleep(LOOK_SECONDS)
            done = time.perf_counter()
            while await count_completed(bench.redis) < count:
                await asyncio.sleep(0)
            seen["lag"].append((time.perf_counter() - done) / working.result())
            wakeups = driver.counters.wakeups
            seen["calls"].append(calls.of.total() / count)
            seen["alone"].append(await alone(bench, count, calls))
            driving.cancel()
            await asyncio.wait([driving])
        seen["backlog"].append(backlog / count)
        seen["wakeups"].append(wakeups / count)
        return working.result()

    took = await bench.in_turn({"bare": bare, "ledger": ledger, "driven": driven, "flows": flows})
    return [
        row("settling.jobs-in-groups", over(took["bare"], took["ledger"])),
        row("settling.jobs-with-driver", over(took["bare"], took["driven"])),
        row("settling.jobs-in-flows", over(took["bare"], took["flows"])),
        row("settling.over-worker", seen["speed"]),
        row("settling.delay", seen["lag"]),
        row("settling.backlog", seen["backlog"]),
        row("settling.wakeups", seen["wakeups"]),
        row("settling.calls", seen["calls"]),
        row("settling.calls-alone", seen["alone"]),
    ]


async def alone(bench: Bench, ended: int, calls: Calls) -> float:
    """Run groups one after the other; return how many calls the driver makes to settle each.

    Among many groups, one call settles a batch of them.
    """
    calls.of.clear()
    for n in range(1, ALONE + 1):
        await create(bench.groups, 1)
        await bench.bullmq("work", count=3, queues=QUEUES, concurrency=50)
        while await count_completed(bench.redis) < ended + n:
            await asyncio.sleep(0)
    return (calls.of["settle_wakeups"] + calls.of["settle_group"]) / ALONE
