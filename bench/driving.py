"""A driver beside many groups: how long a group waits for it, and what starts after a failure.

Times are those of the event stream of the queue: BullMQ adds an entry when a job ends, and the
script that ends a group adds another. Both have the clock of Redis. The driver is a process of its
own, `python -m jobgroup drive`.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import Any

from bench.harness import Bench, create, group
from bench.rows import Row, row
from jobgroup.model import names
from testbed.servers.processes import leashed
from testbed.servers.stock import StockClient, fails_for_good
from testbed.support.sagas import reached

NO_OTHER = "no other group"
LOAD = "load"
BESIDE = "beside"
FAILING = "failing"
# Groups per second, and how many of them are added at a time.
RATE = 100
BURST = 5
CLONES = 2000  # per call

# The keys of a group in three parts, with its id in the middle; the sorted sets that have the id,
# with its score; the new ids.
CLONE = """
local owned, indexes = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])
for n = 3, #ARGV do
  for _, key in ipairs(owned) do
    redis.call("COPY", table.concat(key), key[1] .. ARGV[n] .. key[3])
  end
  for _, index in ipairs(indexes) do redis.call("ZADD", index[1], index[2], ARGV[n]) end
end
"""


@dataclass(frozen=True, slots=True)
class Ends:
    """When the job of each group ended, and when the group did, in milliseconds."""

    jobs: dict[str, int]
    groups: dict[str, int]

    def delays(self) -> list[int]:
        """Return the time from a job's end to its group's end, for each group."""
        return [ended - self.jobs[group_id] for group_id, ended in self.groups.items()]

    def longest_pause(self) -> int:
        """Return the longest time in which a group had to end, and none did."""
        pauses, waiting_since = [0], float("inf")
        ends = sorted((ended, group_id) for group_id, ended in self.groups.items())
        # Backwards: of the groups that end at a time or later, which one has waited longest?
        for n in range(len(ends) - 1, -1, -1):
            ended, group_id = ends[n]
            waiting_since = min(waiting_since, self.jobs[group_id])
            before = ends[n - 1][0] if n else waiting_since
            pauses.append(int(ended - max(before, waiting_since)))
        return max(pauses)


async def driving(bench: Bench) -> list[Row]:
    """Measure the delay of the driver beside other groups, then what starts after a failure."""
    rows, pauses = [], list[int]()
    for what, prepare in situations(bench).items():
        await empty(bench)
        await bench.watch_scripts(False)
        await prepare()
        ends = await under_load(bench)
        delays = ends.delays()
        pauses.append(ends.longest_pause())
        rows += [
            row("driving.delay", median(delays), what),
            row("driving.delay-p99", quantiles(delays, n=100)[98], what),
            row("driving.delay-longest", max(delays), what),
            row("driving.pause", pauses[-1], what),
        ]
        if len(pauses) > 1:
            # The machine pauses the driver, too: the first situation shows for how long.
            added = pauses[-1] - pauses[0]
            rows.append(row("driving.pause-added", added, what))
    return [*rows, await started_after_a_failure(bench)]


def situations(bench: Bench) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the groups beside which the driver is measured, and the functions that make them."""
    sizes = bench.sizes
    made: dict[str, Callable[[], Awaitable[None]]] = {NO_OTHER: partial(none, bench)}
    for count in sizes.beside_ended:
        for others in sizes.beside_running:
            both = f"{others:,} running and {count:,} ended groups"
            made[both] = partial(running_and_ended, bench, others, count)
        for others in sizes.beside_failed:
            both = f"{others:,} failed and {count:,} ended groups"
            made[both] = partial(failed_and_ended, bench, others, count)
    return made


async def empty(bench: Bench) -> None:
    """Delete all keys. Millions of them take longer than a client waits for a reply."""
    await bench.redis.flushall(asynchronous=True)
    while (await bench.redis.info("memory"))["lazyfree_pending_objects"]:
        await asyncio.sleep(0.1)


async def none(bench: Bench) -> None:
    """Leave Redis empty."""


async def running(bench: Bench, count: int) -> None:
    """Create groups of one job, which no worker takes."""
    await create(bench.groups, count, size=500, lanes=2, jobs=1, queues=[BESIDE])


async def running_and_ended(bench: Bench, running_groups: int, ended_groups: int) -> None:
    """Create both kinds of groups."""
    await ended(bench, ended_groups)
    await running(bench, running_groups)


async def failed_and_ended(bench: Bench, failed_groups: int, ended_groups: int) -> None:
    """Create both kinds of groups. Failed groups are reviewed in a pass of their own."""
    await ended(bench, ended_groups)
    await failed(bench, failed_groups)


async def ended(bench: Bench, count: int) -> None:
    """Clone a completed group whose job was removed."""
    definition = group(1, [BESIDE])
    definition["jobs"][0]["opts"] = {"removeOnComplete": True}
    await clone(bench, definition, count)


async def failed(bench: Bench, count: int) -> None:
    """Clone a failed group. Its job is kept: the review of a failed group reads it."""
    definition = group(1, [BESIDE])
    definition["jobs"][0]["name"] = "fails"
    await clone(bench, definition, count)


async def clone(bench: Bench, definition: dict[str, Any], count: int) -> None:
    """Run a group to its end and clone it: every key that has its id, every index.

    The keys of a clone still name the job of the original.
    """
    node = await bench.groups.add_group(**definition)
    async with driver(bench):
        await bench.bullmq("work", count=1, queues=[BESIDE], concurrency=1)
        await bench.groups.wait_for_group(node.group_id)
    redis: Any = bench.redis
    keys = [key async for key in redis.scan_iter(f"*{node.group_id}*", count=1000)]
    owned = [key.partition(node.group_id) for key in keys]
    indexes = []
    for key in (
        names.parked_key("bull"),
        names.job_key("bull", BESIDE, "groups"),
    ):
        indexes.append((key, repr(await redis.zscore(key, node.group_id))))
    script = redis.register_script(CLONE)
    for first in range(0, count, CLONES):
        ids = [f"{node.group_id}.{n}" for n in range(first, min(count, first + CLONES))]
        await script(args=[json.dumps(owned), json.dumps(indexes), *ids])


@asynccontextmanager
async def driver(bench: Bench) -> AsyncIterator[None]:
    """Run a driver, from its first resync on."""
    command = [sys.executable, "-m", "jobgroup", "--redis", bench.server.url, "drive"]
    process = await asyncio.create_subprocess_exec(
        *leashed(command), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None, "started with a pipe"
        assert b"driving" in await process.stderr.readline()
        yield
    finally:
        process.kill()
        await process.wait()


async def under_load(bench: Bench) -> Ends:
    """Add groups that end one after the other, so that wake-ups never stop."""
    count = int(RATE * bench.sizes.seconds) // BURST * BURST
    definition = group(1, [LOAD])
    async with driver(bench):
        reading = asyncio.create_task(read_ends(bench, count))
        work = bench.bullmq("work", count=count, queues=[LOAD], concurrency=10)
        working = asyncio.create_task(work)
        start = time.perf_counter()
        for n in range(0, count, BURST):
            await bench.groups.add_groups([definition] * BURST)
            await asyncio.sleep(max(0, start + n / RATE - time.perf_counter()))
        await working
        return await reading


async def read_ends(bench: Bench, count: int) -> Ends:
    """Read the events of the queue until this number of groups has ended."""
    redis: Any = bench.redis
    stream, last = names.events_key("bull", LOAD), "0-0"
    ends = Ends({}, {})
    while len(ends.groups) < count:
        reply = await redis.xread({stream: last}, count=1000, block=1000)
        for entry, fields in reply[0][1] if reply else []:
            last, at = entry, int(entry.partition("-")[0])
            if fields["event"] == "completed":
                ends.jobs[fields["jobId"].removesuffix("-0")] = at
            elif fields["event"] == "group:completed":
                ends.groups[fields["groupId"]] = at
    return ends


async def started_after_a_failure(bench: Bench) -> Row:
    """Count the groups of which a second job starts after the first job failed.

    The worker runs one job at a time. When it fails a job, it takes the next one in the same call,
    which cannot be prevented. The third should have been dropped when the worker is ready for it.
    """
    await empty(bench)
    count = bench.sizes.failures
    definition = group(3, [FAILING])
    definition["jobs"][0]["name"] = "fails"
    late = 0
    worker = await StockClient.start("bullmq6", bench.server.url, "bull", own=True)
    try:
        await worker.work(FAILING, {"fails": fails_for_good()}, concurrency=1)
        async with driver(bench):
            for _ in range(count):
                node = await bench.groups.add_group(**definition)
                await reached(bench.groups.store, node.group_id, ended=True)
                late += await bench.redis.hexists(node.jobs[2].job_key, "processedOn")
    finally:
        await worker.kill()
    return row("driving.late-starts", 100 * late / count)
