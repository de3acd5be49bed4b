"""Groups created and settled on Sentinel and Cluster, over one server with as many replicas."""

import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from bench.harness import QUEUES, Bench, BullMQ, count_completed, create, over
from bench.rows import Row, row
from jobgroup import Driver, JobGroups
from testbed.servers.redis import HERE, RedisServer
from testbed.servers.redis_cluster import ClusterServers
from testbed.servers.redis_sentinel import REPLICAS, SentinelServers
from testbed.support.waiting import wait_for

VERSION = "8.0"
# With each kind of Redis, clients share the machine with this many replicas of the busy server.
PEERS = {"Sentinel": REPLICAS, "Cluster": 1}
# Groups that each kind runs before it is measured.
WARM_UP = 100
# A busy machine must not fail over.
PATIENT_MS = 20_000


@dataclass(frozen=True, slots=True)
class Contender:
    """The clients of one kind of Redis."""

    groups: JobGroups
    bullmq: BullMQ
    prefix: str

    @property
    def redis(self) -> Redis:
        return self.groups.store.redis

    async def run(self, count: int) -> tuple[float, float]:
        """Return the seconds to create groups, and to settle them after their jobs ended."""
        await self.redis.flushall()
        start = time.perf_counter()
        await create(self.groups, count, size=40, lanes=4)
        created = time.perf_counter() - start
        await self.bullmq("work", count=3 * count, queues=QUEUES, concurrency=50)
        start = time.perf_counter()
        await Driver(self.groups.store).drain()
        settled = time.perf_counter() - start
        assert await count_completed(self.redis, self.prefix) == count
        return created, settled


async def kinds(bench: Bench) -> list[Row]:
    """Run the same groups on each kind in turn."""
    took: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with contenders(Path(folder)) as found:
            for contender in found.values():
                await contender.run(WARM_UP)
            for _ in range(bench.sizes.rounds):
                for name, contender in found.items():
                    took.setdefault(name, []).append(await contender.run(bench.sizes.groups))
    rows = []
    for kind in PEERS:
        peer, own = ([*zip(*took[name], strict=True)] for name in (peer_of(kind), kind))
        rows.append(row("kinds.create", over(peer[0], own[0]), kind))
        rows.append(row("kinds.settle", over(peer[1], own[1]), kind))
    return rows


def peer_of(kind: str) -> str:
    """Return the name of the single server with as many replicas."""
    return f"one server like {kind}"


@asynccontextmanager
async def contenders(folder: Path) -> AsyncIterator[Mapping[str, Contender]]:
    """Start all kinds of Redis, and clients of each."""
    async with AsyncExitStack() as stack:
        sentinel, cluster = folder / "sentinel", folder / "cluster"
        urls = {
            "Sentinel": stack.enter_context(
                SentinelServers(sentinel, version=VERSION, down_after_ms=PATIENT_MS)
            ).url,
            "Cluster": stack.enter_context(
                ClusterServers(cluster, version=VERSION, node_timeout_ms=PATIENT_MS)
            ).url,
        }
        for kind, replicas in PEERS.items():
            urls[peer_of(kind)] = start_server(stack, folder / peer_of(kind), replicas)
        found = {}
        for name, url in urls.items():
            prefix = "{bull}" if name == "Cluster" else "bull"
            groups = await stack.enter_async_context(JobGroups.connect(url, prefix))
            bullmq = await stack.enter_async_context(BullMQ.start(url, prefix))
            found[name] = Contender(groups, bullmq, prefix)
        yield found


def start_server(stack: AsyncExitStack, folder: Path, replicas: int) -> str:
    """Start a server with replicas; return its URL when all copy it."""
    folder.mkdir()
    server = stack.enter_context(RedisServer(folder / "master", version=VERSION))
    for number in range(replicas):
        lines = [f"replicaof {HERE} {server.port}"]
        stack.enter_context(RedisServer(folder / f"replica-{number}", version=VERSION, lines=lines))
    wait_for(lambda: server.call("INFO", "replication").get("connected_slaves") == replicas)
    return server.url
