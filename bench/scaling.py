"""WorkerPools: how fast a new job scales the workload, how many writes a burst of jobs causes, the
cost of many idle pools, and how soon a manual scaling to 0 is corrected.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.field import Field, cpu_of, in_flight, the_field
from bench.harness import Bench
from bench.rows import Row, row
from handlers.kube.client import MERGE
from handlers.workerpools.controller import RESYNC_SECONDS
from jobgroup.model.names import undo_queue
from testbed.servers.operator import MAIN, OperatorProcess, start_operator
from testbed.servers.stock import StockClient
from testbed.support.scrapes import Scrape
from testbed.support.workloads import pool, workload

HURRIED = Path(__file__).with_name("hurried.py")
POOLS = "/apis/jobgroups.dev/v1alpha1/namespaces/default/workerpools"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BURST = [{"name": "undo", "data": {}} for _ in range(50)]


async def scaling(bench: Bench) -> list[Row]:
    """Measure one pool, then many pools, then a pool whose workload somebody stops."""
    few, many = 1, bench.sizes.pools
    async with the_field() as field:
        return [
            *await with_pools(field, few, bench.sizes.bursts),
            *await with_pools(field, many, bench.sizes.bursts, bench.sizes.pool_resync),
            await corrected(field, bench.sizes.stops),
        ]


async def with_pools(field: Field, count: int, bursts: int, resync: float = 0) -> list[Row]:
    """Measure this number of pools: first while they are idle, then with bursts of jobs."""
    names = [f"of-{count}-{n}" for n in range(count)]
    await make(field, names)
    what = f"{count:,} pool" if count == 1 else f"{count:,} pools"
    script, env = (HURRIED, {"RESYNC_SECONDS": str(resync)}) if resync else (MAIN, {})
    with start_operator(
        *(field.folder, field.api.operator, field.redis.url, "bull", f"scaler-{count}", script),
        **env,
    ) as process:
        await told(field, names)
        resting = await at_rest(process, resync) if resync else []
        waits, writes = await wake(field, names, bursts)
    waits.sort()
    worst = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    await clear(field, names)
    return [
        row("scaling.wake", median(waits), what),
        row("scaling.wake-p99", worst, what),
        row("scaling.writes", writes, what),
        *resting,
    ]


async def make(field: Field, names: list[str]) -> None:
    """Create a workload and a pool for each name."""

    async def one(name: str) -> None:
        await field.admin.request("POST", DEPLOYMENTS, workload(name))
        made = pool(name, undo_queue(name), cooldownSeconds=0, jobsPerReplica=10)
        await field.admin.request("POST", POOLS, made)

    await in_flight(one, names)


async def clear(field: Field, names: list[str]) -> None:
    """Delete these workloads and pools, and flush Redis."""

    async def one(name: str) -> None:
        await field.admin.find("DELETE", f"{POOLS}/{name}")
        await field.admin.find("DELETE", f"{DEPLOYMENTS}/{name}")

    await in_flight(one, names)
    await field.client.flushall()


async def told(field: Field, names: list[str]) -> None:
    """Wait until the operator has written the status of each pool."""
    wanted = set(names)
    while wanted:
        await asyncio.sleep(0.2)
        found = await field.admin.request("GET", POOLS)
        wanted -= {
            item["metadata"]["name"] for item in found["items"] if "backlog" in item["status"]
        }


async def wake(field: Field, names: list[str], bursts: int) -> tuple[list[float], float]:
    """Return how long each burst took to scale its workload, and the scale writes per burst."""
    waits = []
    written = scale_writes(field)
    async with (
        replicas_of(field) as seen,
        await StockClient.start("bullmq6", field.redis.url, "bull", own=True) as client,
    ):
        await client.manage(undo_queue(names[0]), "count")  # so that the client is connected
        for n in range(bursts):
            name = names[n % len(names)]
            added = time.time()
            await client.manage(undo_queue(name), "addBulk", BURST)
            waits.append((await _when(seen, name, "5") - added) * 1000)
            await client.manage(undo_queue(name), "drain")
            await _when(seen, name, "0")
    # One more write per burst scales the workload down again.
    return waits, (scale_writes(field) - written) / bursts - 1


async def corrected(field: Field, times: int) -> Row:
    """Set replicas to 0 by hand while jobs wait; measure until the pool has corrected them."""
    name, waits = "stopped", []
    await make(field, [name])
    with start_operator(field.folder, field.api.operator, field.redis.url, "bull", name):
        await told(field, [name])
        async with (
            replicas_of(field) as seen,
            await StockClient.start("bullmq6", field.redis.url, "bull", own=True) as client,
        ):
            await client.manage(undo_queue(name), "addBulk", BURST)
            await _when(seen, name, "5")
            for _ in range(times):
                await set_ready(field, name, 5)
                stopped = time.time()
                stop = {"spec": {"replicas": 0}}
                await field.admin.request("PATCH", f"{DEPLOYMENTS}/{name}", stop, MERGE)
                await _when(seen, name, "0")
                waits.append(await _when(seen, name, "5") - stopped)
    await clear(field, [name])
    return row("scaling.corrected", max(waits))


async def set_ready(field: Field, name: str, count: int) -> None:
    """Set all replicas ready, as controllers do, and wait until the pool has read it.

    Afterwards the pool does not expect a change of its workload.
    """
    ready = {"status": {"replicas": count, "readyReplicas": count}}
    await field.admin.request("PATCH", f"{DEPLOYMENTS}/{name}/status", ready, MERGE)
    while True:
        found = await field.admin.request("GET", f"{POOLS}/{name}")
        if found["status"].get("readyReplicas") == count:
            return
        await asyncio.sleep(0.2)


def scale_writes(field: Field) -> int:
    """Return how many scale requests the API server has received."""
    text = field.api.kubectl("get", "--raw", "/metrics")
    counters = re.findall(r"^apiserver_request_total\{(.*)\} (\d+)", text, re.MULTILINE)
    return sum(
        int(count)
        for labels, count in counters
        if 'subresource="scale"' in labels and 'verb="PATCH"' in labels
    )


def writes(process: OperatorProcess) -> float:
    """Return how many writes the operator has sent, without renewals of the lease."""
    sent = Scrape.of(process).by("what", "jobgroup_api_writes_total")
    return sum(count for what, count in sent.items() if what != "lease")


Seen = asyncio.Queue[tuple[str, str, float]]


@asynccontextmanager
async def replicas_of(field: Field) -> AsyncIterator[Seen]:
    """Watch all workloads; record each change of replicas with its time."""
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "get", "deployments", "--watch", "--no-headers"),
        *("-o", "custom-columns=NAME:.metadata.name,REPLICAS:.spec.replicas"),
        env={**os.environ, "PATH": f"{field.api.kubectl_path.parent}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
    )
    seen: Seen = asyncio.Queue()

    async def note() -> None:
        assert process.stdout is not None, "started with a pipe"
        async for line in process.stdout:
            name, replicas = line.decode().split()
            seen.put_nowait((name, replicas, time.time()))

    noting = asyncio.create_task(note())
    try:
        await seen.get()  # the watch begins with a list of all workloads
        yield seen
    finally:
        process.kill()
        await process.wait()
        await noting


async def _when(seen: Seen, name: str, replicas: str) -> float:
    """Wait until a workload has this number of replicas; return the time."""
    while True:
        found: Any = await seen.get()
        if found[:2] == (name, replicas):
            return float(found[2])


async def at_rest(process: OperatorProcess, resync: float) -> list[Row]:
    """Measure the writes and the CPU time of the operator while all pools are idle.

    Measure for half an interval in which no pool is read again, then for one in which each is read
    once. The operator without this change reads pools less often, so that it rests for longer.
    """
    written = writes(process)
    resting = await cpu_during(process, resync / 2) / (resync / 2)
    reading = await cpu_during(process, resync)
    share = (resting * (RESYNC_SECONDS - resync) + reading) / RESYNC_SECONDS
    return [
        row("scaling.rest-writes", writes(process) - written),
        row("scaling.rest-cpu", 100 * share),
    ]


async def cpu_during(process: OperatorProcess, seconds: float) -> float:
    """Return the CPU seconds that a process uses during this time."""
    used = cpu_of(process)
    await asyncio.sleep(seconds)
    return cpu_of(process) - used
