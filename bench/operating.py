"""The operator on a real API server: what a group costs, and how fast it goes through.

Beside it the same work done with kopf's own create and delete handlers (twin.py), and bare status
writes, which are the most that the API server takes.
"""

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
from statistics import mean, median
from typing import Any

import kopf
from redis.asyncio import Redis

from bench.harness import Bench, Row, Sizes
from handlers.cluster import MERGE, ApiError, Cluster
from jobgroup import keys
from testbed.apiserver import OPERATOR_ACCOUNT, OPERATOR_NAMESPACE, ApiServer
from testbed.operators import MAIN, OperatorProcess, start_operator
from testbed.redis_server import RedisServer
from testbed.resources import manifest
from testbed.stock import StockClient

CRDS = Path(__file__).resolve().parents[1] / "deploy" / "crds"
TWIN = Path(__file__).with_name("twin.py")
FOLDER = "/apis/jobgroups.dev/v1alpha1/namespaces/default/jobgroups"
STATUS = "jobgroups.jobgroups.dev/status"
WHO = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}"
QUEUE = "works"
JOBS = [{"name": f"job-{n}", "queueName": QUEUE, "data": {"n": n}} for n in range(3)]
IN_FLIGHT = 20
TWO_FIELDS = {"observedGeneration": 1, "progress": "1/3"}
ROUNDS = 3
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Field:
    """Servers, a worker, and a client that may do everything."""

    api: ApiServer
    redis: RedisServer
    client: Redis
    admin: Cluster
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
        """Create these groups, a few at a time, and note when each was accepted."""

        async def one(name: str) -> None:
            await self.admin.request("POST", FOLDER, manifest(name, *JOBS))
            self.applied[name] = time.time()

        await in_flight(one, names)

    async def ended(self, names: list[str]) -> None:
        """Wait until all of these are said to have ended."""
        # Redis is asked first: lists of hundreds of objects would take from what is measured.
        while await self.client.zcard(keys.ended("bull")) < len(names):
            await asyncio.sleep(0.02)
        wanted, running = set(names), f"{FOLDER}?fieldSelector=status.state!=COMPLETED"
        while True:
            # Not those that have ended: there may be thousands, and reading them takes time.
            found = await self.admin.request("GET", running)
            if not wanted & {item["metadata"]["name"] for item in found["items"]}:
                return
            await asyncio.sleep(0.05)

    async def sample(self) -> dict[str, Any]:
        """Return an object as the operator leaves one behind whose group has completed."""
        with start_operator(
            self.folder, self.api.operator, self.redis.url, "bull", "sampler"
        ) as process:
            await ready(self, process)
        found = await self.admin.request("GET", f"{FOLDER}/first")
        await self.clear()
        return found

    async def make_ended(self, sample: dict[str, Any], names: list[str]) -> None:
        """Create objects as the operator leaves those behind whose groups have completed."""
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
        """Return these objects' versions, each of which changes with every write."""
        found = await self.admin.request("GET", FOLDER)
        metas = [item["metadata"] for item in found["items"]]
        wanted = set(names)
        return {(meta["name"], meta["resourceVersion"]) for meta in metas if meta["name"] in wanted}

    async def clear(self) -> None:
        """Remove all objects, finalizers or not, and empty Redis."""
        found = await self.admin.request("GET", FOLDER)

        async def one(item: dict[str, Any]) -> None:
            path = f"{FOLDER}/{item['metadata']['name']}"
            await self.admin.request("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
            await self.admin.find("DELETE", path)

        await in_flight(one, found["items"])
        await self.client.flushall()


@dataclass(frozen=True)
class Run:
    """What groups cost and took."""

    writes: float
    rate: float
    cpu: float
    to_redis: float
    to_status: float


async def in_flight(work: Callable[[Any], Any], items: list[Any]) -> None:
    """Do this for all of these, so many at a time."""
    left = iter(items)

    async def lane() -> None:
        for item in left:
            await work(item)

    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))


@asynccontextmanager
async def the_field() -> AsyncIterator[Field]:
    """Start an API server with JobGroups, a Redis and a worker."""
    with (
        tempfile.TemporaryDirectory() as name,
        ApiServer(Path(name)) as api,
        RedisServer(Path(name)) as redis,
    ):
        api.kubectl("apply", "-f", str(CRDS))
        api.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
        # The twin has kopf write what its handlers return, and kopf patches.
        api.kubectl("create", "clusterrole", "twin", "--verb=patch", f"--resource={STATUS}")
        api.kubectl("create", "clusterrolebinding", "twin", "--clusterrole=twin", f"--user={WHO}")
        os.environ["KUBECONFIG"] = str(api.admin)
        admin = Cluster(kopf.OperatorSettings())
        worker = await StockClient.start("bullmq6", redis.url, "bull")
        client: Redis = Redis.from_url(redis.url, decode_responses=True)
        try:
            await worker.work(QUEUE, concurrency=50)
            yield Field(api, redis, client, admin, Path(name))
        finally:
            await worker.kill()
            await admin.close()
            await client.aclose()


async def operating(bench: Bench) -> list[Row]:
    """Measure it all."""
    count = bench.sizes.objects
    async with the_field() as field:
        sample = await field.sample()
        same = await bare_writes(field, count, sample["status"])
        twin, twin_ratio = await between_bare_writes(field, count, TWIN, "twin")
        # The machine and its API server have better and worse moments: what counts is the middle.
        rounds = [await between_bare_writes(field, count, MAIN, "operator") for _ in range(ROUNDS)]
        resting = await at_rest(field, sample, bench.sizes)
    ours, ratio = sorted(rounds, key=lambda each: each[1])[ROUNDS // 2]
    return [
        Row("API writes a successful group", ours.writes, "", at_most=3),
        Row("  with create and delete handlers", twin.writes, ""),
        Row("groups a second, over a quarter of bare writes of two fields", ratio, at_least=0.5),
        Row("  with create and delete handlers", twin_ratio),
        Row(
            "groups a second, over a quarter of bare writes of such a status", 4 * ours.rate / same
        ),
        Row("  with create and delete handlers", 4 * twin.rate / same),
        Row("CPU a group, over create and delete handlers", ours.cpu / twin.cpu, at_most=1),
        Row("accepted to jobs in Redis, median", ours.to_redis, "ms", at_most=100),
        Row("end in Redis to end in status, median", ours.to_status, "ms", at_most=200),
        *resting,
    ]


async def between_bare_writes(
    field: Field, count: int, script: Path, name: str
) -> tuple[Run, float]:
    """Return what groups cost, and how fast they were over a quarter of the bare writes around."""
    bare = [await bare_writes(field, count, TWO_FIELDS)]
    run = await through(field, count, script, name)
    bare.append(await bare_writes(field, count, TWO_FIELDS))
    return run, 4 * run.rate / mean(bare)


async def bare_writes(field: Field, count: int, status: dict[str, Any]) -> float:
    """Return how many writes of a status a second the API server takes."""
    names = [f"bare-{n}" for n in range(count)]
    await field.make(names)

    async def one(name: str) -> None:
        await field.admin.request("PATCH", f"{FOLDER}/{name}/status", {"status": status}, MERGE)

    start = time.perf_counter()
    await in_flight(one, names)
    took = time.perf_counter() - start
    await field.clear()
    return count / took


async def through(field: Field, count: int, script: Path, name: str) -> Run:
    """Send groups through an operator in one burst, then some one by one."""
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
        created, told = await latencies(field, names[: count // 5])
    await field.clear()
    return Run(run["writes"] / count, count / took, run["cpu"] / count, created, told)


async def latencies(field: Field, sample: list[str]) -> tuple[float, float]:
    """Return the medians of two waits, of groups that come one by one."""
    names = [f"{name}-alone" for name in sample]
    told: dict[str, float] = {}
    watching = asyncio.create_task(note_ends(field, set(names), told))
    await asyncio.sleep(0.5)
    for name in names:
        await field.make([name])
        await asyncio.sleep(0.05)
    await watching
    to_redis, to_status = [], []
    for name in names:
        item = await field.admin.request("GET", f"{FOLDER}/{name}")
        group = await field.client.hgetall(f"bull:{QUEUE}:groups:{item['metadata']['uid']}")
        to_redis.append(float(group["createdAt"]) - field.applied[name] * 1000)
        to_status.append(told[name] * 1000 - float(group["finishedAt"]))
    return median(to_redis), median(to_status)


async def note_ends(field: Field, wanted: set[str], told: dict[str, float]) -> None:
    """Watch the objects, and note when each is first said to have ended."""
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
            if name in wanted and state.strip() == "COMPLETED":
                told.setdefault(name, time.time())
    finally:
        process.kill()
        await process.wait()


async def at_rest(field: Field, sample: dict[str, Any], sizes: Sizes) -> list[Row]:
    """Start the operator among very many objects, most of them finished."""
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
    what = f"among {sizes.finished:,} finished groups"
    return [
        Row(f"start to idle {what} and {sizes.running:,} to run", idle, "s", at_most=30),
        Row("  writes to finished ones", float(len(after - before)), "", at_most=0),
        Row(f"memory a minute after the start {what}", resident, "MB", at_most=150),
        Row("  at its peak", peak, "MB"),
    ]


async def ready(field: Field, process: OperatorProcess) -> None:
    """Wait until an operator has made and ended its first group."""
    while True:
        try:
            await field.make(["first"])
            break
        except ApiError:
            await asyncio.sleep(0.5)
    await field.ended(["first"])


def cpu_of(process: OperatorProcess) -> float:
    """Return the seconds of CPU that a process has used."""
    stat = Path(f"/proc/{process.server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / TICKS


def memory_of(process: OperatorProcess) -> tuple[float, float]:
    """Return the megabytes that a process has resident, and had at most."""
    text = Path(f"/proc/{process.server.pid}/status").read_text()
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", text, re.MULTILINE))
    return int(found["VmRSS"]) / 1024, int(found["VmHWM"]) / 1024
