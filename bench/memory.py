"""The memory of a group, over that of its jobs without a group."""

import tempfile
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from bench.harness import DATA, QUEUES, Bench, BullMQ, group
from bench.rows import Row, row
from jobgroup import Driver, JobGroups
from jobgroup.definition.plan import plan_group
from jobgroup.definition.spec import generate_group_id, parse_group
from testbed.servers.redis import WHEEL, RedisServer

TINY = {"n": 1}
# The bars are for the oldest version, and for one that stores hashes in another way.
NEWER = "8.0"
PARENT_AND_THREE = (QUEUES[0], *QUEUES)
CLUSTER = str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Groups:
    """What is created: groups of three jobs."""

    data: dict[str, Any]
    undo: bool = False
    # A name, and so an undo, of its own for each job.
    names: bool = False
    resource: bool = False

    @property
    def definition(self) -> dict[str, Any]:
        made = group(undo=self.undo)
        jobs = [{**job, "data": self.data} for job in made["jobs"]]
        if self.names:
            jobs = [{**job, "name": f"works-{n}"} for n, job in enumerate(jobs)]
            undo = made["compensation"]["works"]
            made["compensation"] = {job["name"]: undo for job in jobs}
        return {**made, "jobs": jobs}


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is emptied before each measurement."""

    groups: JobGroups
    bullmq: BullMQ
    count: int

    @property
    def redis(self) -> Redis:
        return self.groups.store.redis

    async def jobs(self, data: dict[str, Any], ended: bool = False) -> float:
        """Return the bytes of three jobs without a group."""
        await self.redis.flushall()
        await self.bullmq("jobs", count=self.count, queues=QUEUES, data=data)
        if ended:
            await self._run()
        else:
            await self._finish_tables()
        return await self._used()

    async def flows(self, data: dict[str, Any], queues: Sequence[str]) -> float:
        """Return the bytes of a flow: the parent is in the first queue, a child in each other."""
        await self.redis.flushall()
        fields = {"count": self.count, "queues": queues, "data": data, "size": 100, "lanes": 1}
        await self.bullmq("flows", **fields)
        return await self._used()

    async def of(self, what: Groups, ended: bool = False) -> float:
        """Return the bytes of a group."""
        await self.redis.flushall()
        definition = parse_group(**what.definition)
        plans = [
            plan_group(definition, str(uuid.uuid4()), CLUSTER, f"default/order-{n:04}")
            if what.resource
            else plan_group(definition, generate_group_id(), is_id_generated=True)
            for n in range(self.count)
        ]
        results = await self.groups.store.create(plans)
        assert all(result is True for result in results), "no group is refused"
        if ended:
            await self._run()
            await Driver(self.groups.store).drain()
        return await self._used()

    async def _run(self) -> None:
        await self.bullmq("work", count=3 * self.count, queues=QUEUES, concurrency=50)

    async def _finish_tables(self) -> None:
        """Make Redis remove the smaller tables of hashes, as when their fields are read.

        It moves a hash to a larger table in steps. Whether new jobs of BullMQ still have both
        depends on a random number of the server, and with it all ratios would.
        """
        pipeline = self.redis.pipeline(transaction=False)
        async for key in self.redis.scan_iter("*", count=1000, _type="hash"):
            pipeline.hmget(key, ["name"] * 16)
        await pipeline.execute()

    async def _used(self) -> float:
        pipeline = self.redis.pipeline(transaction=False)
        async for key in self.redis.scan_iter("*", count=1000):
            pipeline.memory_usage(key, samples=0)
        return float(sum(await pipeline.execute())) / self.count


async def memory(bench: Bench) -> list[Row]:
    """Measure an old and a new version of Redis."""
    plain, tiny = Groups(DATA), Groups(TINY)
    undos = replace(plain, undo=True)
    async with serving(WHEEL, bench.sizes.groups) as server:
        bare, bare_tiny = await server.jobs(DATA), await server.jobs(TINY)
        bare_ended = await server.jobs(DATA, ended=True)
        ours, ours_tiny = await server.of(plain), await server.of(tiny)
        rows = [
            row("memory.group", ours / bare),
            row("memory.group-undos", await server.of(undos) / bare),
            row("memory.group-named-undos", await server.of(replace(undos, names=True)) / bare),
            row("memory.resource", await server.of(replace(plain, resource=True)) / bare),
            row("memory.resource-undos", await server.of(replace(undos, resource=True)) / bare),
            row("memory.flow", await server.flows(DATA, QUEUES) / bare),
            row("memory.larger-flow", await server.flows(DATA, PARENT_AND_THREE) / bare),
            row("memory.ended", await server.of(plain, ended=True) / bare_ended),
            row("memory.ended-undos", await server.of(undos, ended=True) / bare_ended),
            row("memory.tiny", ours_tiny / bare_tiny),
            row("memory.tiny-flow", await server.flows(TINY, PARENT_AND_THREE) / bare_tiny),
            row("memory.bare", bare),
            row("memory.bare-tiny", bare_tiny),
            row("memory.bare-ended", bare_ended),
        ]
        # Its name since Redis 7 is hash-max-listpack-value.
        await server.redis.config_set("hash-max-ziplist-value", 512)
        rows += [
            row("memory.listpack-512", await server.of(plain) / ours),
            row("memory.listpack-512-tiny", await server.of(tiny) / ours_tiny),
        ]
    async with serving(NEWER, bench.sizes.groups) as server:
        bare = await server.jobs(DATA)
        rows += [
            row("memory.group-redis-8", await server.of(plain) / bare),
            row("memory.group-undos-redis-8", await server.of(undos) / bare),
        ]
    return rows


@asynccontextmanager
async def serving(version: str, count: int) -> AsyncIterator[Server]:
    """Start a version of Redis and its clients."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(RedisServer(folder / "redis", version=version))
        bullmq = await stack.enter_async_context(BullMQ.start(server.url))
        groups = await stack.enter_async_context(JobGroups.connect(server.url))
        yield Server(groups, bullmq, count)
