"""The servers of the operator benchmarks: a real API server, Redis and a worker."""

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kopf
from redis.asyncio import Redis

from bench.harness import count_completed
from handlers.kube.client import MERGE, ApiClient, ApiError
from testbed.servers.apiserver import OPERATOR_ACCOUNT, OPERATOR_NAMESPACE, ApiServer
from testbed.servers.operator import OperatorProcess, start_operator
from testbed.servers.redis import RedisServer
from testbed.servers.stock import StockClient
from testbed.support.resources import install_crds, manifest

FOLDER = "/apis/jobgroups.dev/v1alpha1/namespaces/default/jobgroups"
PATCHED = "jobgroups.jobgroups.dev,jobgroups.jobgroups.dev/status"
WHO = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}"
QUEUE = "works"
JOBS = [{"name": f"job-{n}", "queueName": QUEUE, "data": {"n": n}} for n in range(3)]
IN_FLIGHT = 20
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Field:
    """Servers, a worker, an admin client, and a client with the operator's permissions."""

    api: ApiServer
    redis: RedisServer
    client: Redis
    admin: ApiClient
    peer: ApiClient
    folder: Path
    applied: dict[str, float] = field(default_factory=dict)

    def metrics(self) -> int:
        """Return how many writes to JobGroups the API server has counted."""
        text = self.api.kubectl("get", "--raw", "/metrics")
        counters = re.findall(r"^apiserver_request_total\{(.*)\} (\d+)", text, re.MULTILINE)
        return sum(
            int(count)
            for labels, count in counters
            if 'resource="jobgroups"' in labels and re.search('verb="(PATCH|PUT)"', labels)
        )

    async def make(self, names: list[str]) -> None:
        """Create these JobGroups, a few at a time, and record when each was accepted."""

        async def one(name: str) -> None:
            await self.admin.request("POST", FOLDER, manifest(name, *JOBS))
            self.applied[name] = time.time()

        await in_flight(one, names)

    async def ended(self, names: list[str]) -> None:
        """Wait until all JobGroups have a final status."""
        # Query Redis first: listing hundreds of objects would distort the measurement.
        while await count_completed(self.client) < len(names):
            await asyncio.sleep(0.02)
        # For the same reason, list at most one unfinished object.
        running = f"{FOLDER}?fieldSelector=status.state!=COMPLETED&limit=1"
        while (await self.admin.request("GET", running))["items"]:
            await asyncio.sleep(0.05)

    async def sample(self) -> dict[str, Any]:
        """Run a group, and return its object as the operator has left it."""
        with start_operator(
            self.folder, self.api.operator, self.redis.url, "bull", "sampler"
        ) as process:
            await ready(self, process)
        found = await self.admin.request("GET", f"{FOLDER}/first")
        await self.clear()
        return found

    async def make_ended(self, sample: dict[str, Any], names: list[str]) -> None:
        """Create objects of completed groups, as the operator leaves them."""
        left = {key: sample["metadata"][key] for key in ("finalizers", "annotations")}
        text = json.dumps({"metadata": left, "status": sample["status"]})

        async def one(name: str) -> None:
            made = await self.admin.request("POST", FOLDER, manifest(name, *JOBS))
            like = json.loads(text.replace(sample["metadata"]["uid"], made["metadata"]["uid"]))
            kept, told = {"metadata": like["metadata"]}, {"status": like["status"]}
            await self.admin.request("PATCH", f"{FOLDER}/{name}", kept, MERGE)
            await self.admin.request("PATCH", f"{FOLDER}/{name}/status", told, MERGE)

        await in_flight(one, names)

    async def versions(self, names: list[str]) -> set[tuple[str, str]]:
        """Return the names and resourceVersions of these objects; every write changes a version."""
        found = await self.admin.request("GET", FOLDER)
        metas = [item["metadata"] for item in found["items"]]
        wanted = set(names)
        return {(meta["name"], meta["resourceVersion"]) for meta in metas if meta["name"] in wanted}

    async def clear(self) -> None:
        """Delete all objects, even with finalizers, and flush Redis."""
        found = await self.admin.request("GET", FOLDER)

        async def one(item: dict[str, Any]) -> None:
            path = f"{FOLDER}/{item['metadata']['name']}"
            await self.admin.request("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
            await self.admin.find("DELETE", path)

        await in_flight(one, found["items"])
        await self.client.flushall()


@asynccontextmanager
async def the_field() -> AsyncIterator[Field]:
    """Start an API server with JobGroups, a Redis and a worker."""
    with (
        tempfile.TemporaryDirectory() as name,
        ApiServer(Path(name)) as api,
        RedisServer(Path(name)) as redis,
    ):
        install_crds(api)
        # The twin writes through kopf, which patches.
        api.kubectl("create", "clusterrole", "twin", "--verb=patch", f"--resource={PATCHED}")
        api.kubectl("create", "clusterrolebinding", "twin", "--clusterrole=twin", f"--user={WHO}")
        # log_in sets KUBECONFIG, so the admin must be last: kubectl then uses its identity.
        peer, admin = await log_in(api.operator), await log_in(api.admin)
        worker = await StockClient.start("bullmq6", redis.url, "bull", own=True)
        client: Redis = Redis.from_url(redis.url, decode_responses=True)
        try:
            await worker.work(QUEUE, concurrency=50)
            yield Field(api, redis, client, admin, peer, Path(name))
        finally:
            await worker.kill()
            await admin.close()
            await peer.close()
            await client.aclose()


async def log_in(kubeconfig: Path) -> ApiClient:
    """Return a client with the identity of a kubeconfig."""
    os.environ["KUBECONFIG"] = str(kubeconfig)
    api = ApiClient(kopf.OperatorSettings())
    await api.uid()
    return api


async def in_flight(work: Callable[[Any], Any], items: list[Any]) -> None:
    """Process all items, a fixed number at a time."""
    left = iter(items)

    async def lane() -> None:
        for item in left:
            await work(item)

    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))


async def ready(field: Field, process: OperatorProcess) -> None:
    """Create a first group, and wait until the operator has completed it."""
    while True:
        try:
            await field.make(["first"])
            break
        except ApiError:
            await asyncio.sleep(0.5)
    await field.ended(["first"])


def cpu_of(process: OperatorProcess) -> float:
    """Return the CPU seconds that a process has used."""
    stat = Path(f"/proc/{process.server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / TICKS


def memory_of(process: OperatorProcess) -> tuple[float, float]:
    """Return the resident memory of a process and its peak, in megabytes."""
    text = Path(f"/proc/{process.server.pid}/status").read_text()
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", text, re.MULTILINE))
    return int(found["VmRSS"]) / 1024, int(found["VmHWM"]) / 1024
