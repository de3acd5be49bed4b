"""Redis, a BullMQ process and a Python client for all benchmarks; rounds."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from bench.sizes import Sizes, chosen_sizes
from jobgroup import JobGroups
from jobgroup.model import names
from testbed.build.toolchain import node
from testbed.servers.processes import leashed
from testbed.servers.redis import RedisServer

BULLMQ = Path(__file__).with_name("bullmq.mjs")
QUEUES = ("alpha", "beta", "gamma")
# The lowest score of COMPLETED groups, see lua/includes/state_scores.lua.
COMPLETED_SCORE = 2e15
# About 200 bytes of JSON.
DATA = {"orderId": "order-0123456789", "customer": "0123456789", "note": "x" * 130}


class BullMQ:
    """Stock BullMQ 6 in a separate process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def start(cls, url: str, prefix: str = "bull") -> "AsyncIterator[BullMQ]":
        """Start the process for the queues of a prefix."""
        process = await asyncio.create_subprocess_exec(
            *leashed([str(node()), str(BULLMQ), url, prefix]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield cls(process)
        finally:
            process.kill()
            await process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def __call__(self, order: str, **fields: Any) -> float:
        """Send a command to the process; return how many seconds it took."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "started with a pipe"
        assert stdout is not None, "started with a pipe"
        stdin.write(json.dumps({"order": order, **fields}).encode() + b"\n")
        return float(await stdout.readline())


@dataclass(frozen=True, slots=True)
class Bench:
    """The parts that every measurement uses."""

    server: RedisServer
    redis: Redis
    groups: JobGroups
    bullmq: BullMQ
    sizes: Sizes

    @classmethod
    @asynccontextmanager
    async def start(cls) -> "AsyncIterator[Bench]":
        """Start all parts."""
        sizes = chosen_sizes(os.environ)
        with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
            async with BullMQ.start(server.url) as bullmq, JobGroups.connect(server.url) as groups:
                yield cls(server, groups.store.redis, groups, bullmq, sizes)

    async def in_turn(
        self, contenders: Mapping[str, Callable[[], Awaitable[float]]], rounds: int = 0
    ) -> dict[str, list[float]]:
        """Run each contender in turn on an empty Redis, for several rounds."""
        took: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(rounds or self.sizes.rounds):
            for name, run in contenders.items():
                await self.redis.flushall()
                await self.watch_scripts(False)
                took[name].append(await run())
        return took

    async def watch_scripts(self, on: bool = True) -> None:
        """Switch the slow log for all calls on or off."""
        await self.redis.config_set("slowlog-max-len", 10_000)
        await self.redis.config_set("slowlog-log-slower-than", 0 if on else -1)
        await self.redis.slowlog_reset()

    async def script_ms(self) -> list[float]:
        """Return the milliseconds of each script call since this function was last called."""
        calls = await self.redis.slowlog_get(10_000)
        await self.redis.slowlog_reset()
        return [call["duration"] / 1000 for call in calls if call["command"].startswith(b"EVALSHA")]


def over(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratio of each round."""
    return [one / other for one, other in zip(ones, others, strict=True)]


def group(jobs: int = 3, queues: Sequence[str] = QUEUES, undo: bool = False) -> dict[str, Any]:
    """Return the definition of a group whose jobs are distributed over the queues."""
    members = [
        {
            "name": "works",
            "queueName": queues[n % len(queues)],
            "data": {**DATA, "orderId": f"order-{n:010}"},
        }
        for n in range(jobs)
    ]
    made: dict[str, Any] = {"name": "bench", "jobs": members}
    return {**made, "compensation": {"works": {"name": "undoes", "data": DATA}}} if undo else made


async def count_completed(redis: Redis, prefix: str = "bull") -> int:
    """Return the number of COMPLETED groups: the last ones among the parked groups."""
    return int(await redis.zcount(names.parked_key(prefix), COMPLETED_SCORE, "+inf"))


async def create(groups: JobGroups, count: int, size: int = 50, lanes: int = 1, **of: Any) -> None:
    """Create this number of groups in batches, several batches at a time."""
    definition = group(**of)
    batches = iter([min(size, count - first) for first in range(0, count, size)])

    async def lane() -> None:
        for batch in batches:
            await groups.add_groups([definition] * batch)

    await asyncio.gather(*(lane() for _ in range(lanes)))
