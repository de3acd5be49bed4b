"""How soon a driver notices what people do to the jobs of a group, beside many other groups.

The state is read from the hash of a group, because reading the group would settle it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.driving import BESIDE, driver, empty, running
from bench.harness import Bench, group
from bench.rows import Row, row
from jobgroup import GroupNode
from jobgroup.model import names
from testbed.servers.stock import StockClient, fails_for_good

OTHER, FAILED = "other", "failed"


async def noticing(bench: Bench) -> list[Row]:
    """Measure beside no other group, and beside many running ones."""
    rows = []
    for count in (0, *bench.sizes.beside_running):
        await empty(bench)
        await bench.watch_scripts(False)
        await running(bench, count)
        client = await StockClient.start("bullmq5", bench.server.url, "bull", own=True)
        try:
            async with driver(bench):
                rows += await noticed(bench, client, f"{count:,} running groups")
        finally:
            await client.kill()
    return rows


async def noticed(bench: Bench, client: StockClient, beside: str) -> list[Row]:
    """Return the longest of a few measurements of each kind."""
    redis: Any = bench.redis

    async def drain(_: GroupNode) -> None:
        await client.manage(OTHER, "drain", True)

    async def delete(node: GroupNode) -> None:
        await redis.delete(node.jobs[1].job_key)

    times = bench.sizes.drains
    drained = [await removed(bench, drain) for _ in range(times)]
    deleted = [await removed(bench, delete) for _ in range(2)]
    await client.work(FAILED, {"works": fails_for_good()})
    retried = [await retried_in_bulk(bench, client) for _ in range(times)]
    return [
        row("noticing.drained", max(drained), beside),
        row("noticing.deleted", max(deleted), beside),
        row("noticing.retried", max(retried), beside),
    ]


async def removed(bench: Bench, remove: Callable[[GroupNode], Awaitable[None]]) -> float:
    """Remove a job of a new group; return after how many seconds the group is given up."""
    redis: Any = bench.redis
    node = await bench.groups.add_group(**group(2, [BESIDE, OTHER]))
    key = names.group_key("bull", BESIDE, node.group_id)
    await remove(node)
    start = time.perf_counter()
    while await redis.hget(key, "state") == "ACTIVE":
        await asyncio.sleep(0.01)
    return time.perf_counter() - start


async def retried_in_bulk(bench: Bench, client: StockClient) -> float:
    """Retry the job of a failed group as BullMQ 5 does, which changes no ledger.

    Return after how many seconds the ledger shows that the job is open again.
    """
    redis: Any = bench.redis
    await client.manage(FAILED, "resume")
    node = await bench.groups.add_group(**group(1, [FAILED]))
    await bench.groups.wait_for_group(node.group_id)
    await client.manage(FAILED, "pause")
    await client.manage(FAILED, "retryJobs")
    start = time.perf_counter()
    ledger = f"{names.parent_key('bull', node.group_id)}:dependencies"
    while not await redis.sismember(ledger, node.jobs[0].job_key):
        await asyncio.sleep(0.01)
    return time.perf_counter() - start
