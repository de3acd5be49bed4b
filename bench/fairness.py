"""One tenant floods the operator: how long a neighbour in another namespace waits.

The times under the flood are compared with those before it, in the same run. The flood also slows
the API server down. A bare write shows how much: the neighbour changes a label of a small object of
the same kind, and waits for the watch event. The tenant sends one request at a time, as kubectl
does.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

from bench.field import JOBS, Field, in_flight, ready, the_field
from bench.harness import DATA, Bench
from bench.rows import Row, row
from bench.sizes import Sizes
from handlers.kube.client import MERGE
from testbed.servers.operator import start_operator
from testbed.servers.stock import StockClient
from testbed.support.resources import manifest, namespace_named
from testbed.support.workloads import pool, workload

TENANT, NEIGHBOUR = "tenant", "neighbour"
OURS, APPS = "jobgroups.dev/v1alpha1", "apps/v1"
# The neighbour pauses between two measurements.
PAUSE_SECONDS = 0.05

Flood = Callable[[], Coroutine[Any, Any, None]]
Times = tuple[list[float], list[float]]


def folder(namespace: str, plural: str, version: str = OURS) -> str:
    """Return the path of the objects of one kind in a namespace."""
    return f"/apis/{version}/namespaces/{namespace}/{plural}"


WORKLOADS = folder(NEIGHBOUR, "deployments", APPS)


async def fairness(bench: Bench) -> list[Row]:
    """Measure a flood of large groups, then a flood of pools."""
    async with the_field() as field:
        for name in (TENANT, NEIGHBOUR):
            await field.admin.request("POST", "/api/v1/namespaces", namespace_named(name))
        return [*await large_groups(field, bench.sizes), *await many_pools(field, bench.sizes)]


async def large_groups(field: Field, sizes: Sizes) -> list[Row]:
    """Run sagas of three jobs while another namespace creates and deletes large groups."""
    count, jobs = sizes.large_groups, sizes.large_jobs
    large = folder(TENANT, "jobgroups")
    # No worker runs these jobs: they are dropped when the group is deleted.
    member = {"queueName": "unattended", "data": {"note": DATA["note"]}}
    members = [{"name": f"job-{n}", **member} for n in range(jobs)]

    async def flood() -> None:
        for n in range(count):
            await field.admin.request("POST", large, manifest(f"large-{n}", *members))
        for n in range(count):
            await field.admin.request("DELETE", f"{large}/large-{n}")
        while (await field.admin.request("GET", f"{large}?limit=1"))["items"]:
            await asyncio.sleep(0.2)

    with start_operator(
        field.folder, field.api.operator, field.redis.url, "bull", "fair-groups"
    ) as process:
        await ready(field, process)
        async with neighbour(field, folder(NEIGHBOUR, "jobgroups"), ".status.state") as one:
            before = await one.measure(one.saga, asyncio.sleep(sizes.calm))
            under = await one.measure(one.saga, flood())
    await field.clear()
    return compared("saga", before, under)


async def many_pools(field: Field, sizes: Sizes) -> list[Row]:
    """Scale a workload again and again while another namespace creates many pools."""
    names = [f"pool-{n}" for n in range(sizes.many_pools)]
    pools, deployments = folder(TENANT, "workerpools"), folder(TENANT, "deployments", APPS)

    async def make_workload(name: str) -> None:
        await field.admin.request("POST", deployments, workload(name))

    async def flood() -> None:
        for name in names:
            await field.admin.request("POST", pools, pool(name, name))

    await in_flight(make_workload, names)
    with start_operator(field.folder, field.api.operator, field.redis.url, "bull", "fair-pools"):
        async with neighbour(field, WORKLOADS, ".spec.replicas") as one:
            await one.make_pool()
            before = await one.measure(one.scaling, asyncio.sleep(sizes.calm))
            under = await one.measure(one.scaling, flood())
    return compared("pool", before, under)


def compared(what: str, before: Times, under: Times) -> list[Row]:
    """Return the rows of one flood."""
    ours, bare = (median(under[n]) / median(before[n]) for n in (0, 1))
    return [
        row(f"fairness.{what}", ours),
        row(f"fairness.{what}-longest", 1000 * max(under[0])),
        row(f"fairness.{what}-bare", bare),
        row(f"fairness.{what}-bare-longest", 1000 * max(under[1])),
        row(f"fairness.{what}-calm", 1000 * median(before[0])),
    ]


class Neighbour:
    """The neighbour: its sagas, its pool, and what a watch of its objects has seen."""

    def __init__(self, field: Field, client: StockClient, path: str) -> None:
        self.seen: asyncio.Queue[tuple[str, str, float]] = asyncio.Queue()
        self._path = path
        # The last object that was measured, and its value.
        self._last = ("", "")
        self._api = field.admin
        self._client = client
        self._sagas = self._jobs = self._writes = 0

    async def measure(
        self, measure: Callable[[], Coroutine[Any, Any, float]], during: Coroutine[Any, Any, None]
    ) -> Times:
        """Measure, in turn with a bare write, until `during` has ended; return all times."""
        busy, ours, bare = asyncio.create_task(during), [await measure()], [await self.write()]
        while not busy.done():
            await asyncio.sleep(PAUSE_SECONDS)
            ours.append(await measure())
            bare.append(await self.write())
        await busy
        return ours, bare

    async def saga(self) -> float:
        """Create a saga; return the seconds until its status is COMPLETED."""
        self._sagas += 1
        name, start = f"small-{self._sagas}", time.perf_counter()
        await self._api.request("POST", folder(NEIGHBOUR, "jobgroups"), manifest(name, *JOBS))
        return await self._when(name, "COMPLETED") - start

    async def make_pool(self) -> None:
        """Create a workload and its pool."""
        await self._api.request("POST", WORKLOADS, workload("small"))
        made = pool("small", "small", jobsPerReplica=1, maxReplicas=1000)
        await self._api.request("POST", folder(NEIGHBOUR, "workerpools"), made)

    async def scaling(self) -> float:
        """Add a job; return the seconds until the workload has one more replica."""
        self._jobs += 1
        start = time.perf_counter()
        await self._client.manage("small", "addBulk", [{"name": "job", "data": {}}])
        return await self._when("small", str(self._jobs)) - start

    async def write(self) -> float:
        """Write the object that was measured last; return the seconds until its watch event."""
        self._writes += 1
        while not self.seen.empty():
            self.seen.get_nowait()
        start = time.perf_counter()
        change = {"metadata": {"labels": {"writes": str(self._writes)}}}
        await self._api.request("PATCH", f"{self._path}/{self._last[0]}", change, MERGE)
        return await self._when(*self._last) - start

    async def _when(self, name: str, value: str) -> float:
        """Wait until an object has this value; return the time."""
        self._last = name, value
        while True:
            found = await self.seen.get()
            if found[:2] == (name, value):
                return found[2]


@asynccontextmanager
async def neighbour(field: Field, path: str, value: str) -> AsyncIterator[Neighbour]:
    """Start a client of the neighbour's queues, and a watch of its objects in a folder."""
    plural = path.rpartition("/")[2]
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "get", plural, "--watch", "--no-headers", f"--namespace={NEIGHBOUR}"),
        *("-o", f"custom-columns=NAME:.metadata.name,VALUE:{value}"),
        env={**os.environ, "PATH": f"{field.api.kubectl_path.parent}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
    )
    async with await StockClient.start("bullmq6", field.redis.url, "bull", own=True) as client:
        one = Neighbour(field, client, path)

        async def note() -> None:
            assert process.stdout is not None, "started with a pipe"
            async for line in process.stdout:
                name, content = line.decode().split()
                one.seen.put_nowait((name, content, time.perf_counter()))

        noting = asyncio.create_task(note())
        try:
            yield one
        finally:
            process.kill()
            await process.wait()
            await noting
