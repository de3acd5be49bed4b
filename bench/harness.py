"""Redis, a BullMQ process and a Python client for all benchmarks; rounds and rows."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from redis.asyncio import Redis

from jobgroup import JobGroups
from testbed.build.toolchain import node
from testbed.servers.processes import leashed
from testbed.servers.redis import RedisServer

BULLMQ = Path(__file__).with_name("bullmq.mjs")
QUEUES = ("alpha", "beta", "gamma")
# About 200 bytes of JSON.
DATA = {"orderId": "order-0123456789", "customer": "0123456789", "note": "x" * 130}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a number and its bar, if it has one."""

    what: str
    value: float
    unit: str = "x"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bar(self) -> str:
        """Return the bar as text."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def holds(self) -> bool | None:
        """Return whether the bar is met; None if there is no bar."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of all measurements."""

    rounds: int = 7
    groups: int = 2000
    failing: tuple[int, ...] = (10, 100, 1000, 2000)
    backlog: int = 100_000
    members: tuple[int, ...] = (1, 10, 100, 500, 2000)
    existing: tuple[int, ...] = (100, 1000, 10_000, 100_000)
    queues: tuple[int, ...] = (1, 10, 100, 200)
    objects: int = 500
    finished: int = 9_000
    running: int = 1_000
    rest: float = 60
    pools: int = 500
    bursts: int = 40
    # Longer than the longest interval between two reconciles of a pool.
    pool_rest: float = 330
    # How often somebody sets the replicas of a workload to 0.
    stops: int = 5
    failovers: int = 5
    # The default of the operator.
    watch_timeout: int = 60
    large_groups: int = 60
    large_jobs: int = 2000
    many_pools: int = 3000
    # The seconds in which the neighbour is measured without a flood.
    calm: float = 5
    beside_running: tuple[int, ...] = (100_000,)
    beside_ended: tuple[int, ...] = (1_000_000,)
    beside_failed: tuple[int, ...] = (100_000,)
    # Longer than the interval between two resyncs.
    seconds: float = 45
    failures: int = 60
    drains: int = 5


QUICK = Sizes(
    rounds=1,
    groups=100,
    failing=(10,),
    backlog=1000,
    members=(1, 100),
    existing=(100, 200),
    queues=(1, 100),
    objects=20,
    finished=50,
    running=10,
    rest=1,
    pools=5,
    bursts=2,
    pool_rest=1,
    stops=1,
    failovers=1,
    watch_timeout=5,
    large_groups=2,
    large_jobs=50,
    many_pools=5,
    calm=0.5,
    beside_running=(200,),
    beside_ended=(200,),
    beside_failed=(200,),
    seconds=2,
    failures=5,
    drains=1,
)


def chosen_sizes(environment: Mapping[str, str]) -> Sizes:
    """Return the sizes that the environment selects.

    BENCH_QUICK=1 selects small ones for a test. BENCH_RUNNING, BENCH_ENDED and BENCH_FAILED are
    numbers of other groups, separated by commas, beside which the driver is measured.
    """
    sizes = QUICK if environment.get("BENCH_QUICK") else Sizes()

    def numbers(name: str, otherwise: tuple[int, ...]) -> tuple[int, ...]:
        given = environment.get(name)
        return otherwise if given is None else tuple(map(int, filter(None, given.split(","))))

    return replace(
        sizes,
        beside_running=numbers("BENCH_RUNNING", sizes.beside_running),
        beside_ended=numbers("BENCH_ENDED", sizes.beside_ended),
        beside_failed=numbers("BENCH_FAILED", sizes.beside_failed),
    )


class BullMQ:
    """Stock BullMQ 6 in a separate process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

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
            process = await asyncio.create_subprocess_exec(
                *leashed([str(node()), str(BULLMQ), server.url]),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                async with JobGroups.connect(server.url) as groups:
                    redis = groups.store.redis
                    yield cls(server, redis, groups, BullMQ(process), sizes)
            finally:
                process.kill()
                await process.wait()

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


def over(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios of each round."""
    return median(one / other for one, other in zip(ones, others, strict=True))


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


async def create(groups: JobGroups, count: int, size: int = 50, lanes: int = 1, **of: Any) -> None:
    """Create this number of groups in batches, several batches at a time."""
    definition = group(**of)
    batches = iter([min(size, count - first) for first in range(0, count, size)])

    async def lane() -> None:
        for batch in batches:
            await groups.add_groups([definition] * batch)

    await asyncio.gather(*(lane() for _ in range(lanes)))
