"""read_backlog.lua on a real Redis, with queues that stock producers filled."""

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from jobgroup import Store
from jobgroup.model.backlog import Backlog
from jobgroup.model.clock import now_ms
from testbed.servers.stock import StockClient, hangs
from testbed.support.fixtures import ClientStarter, QueueNamer

HOUR = 3_600_000
NAMES = ("payments", "payments:compensation")


async def read(redis: Redis, prefix: str, queue: str, horizon: int = 60_000) -> Backlog:
    (found,) = await Store(redis, prefix).queues.backlogs([(queue, horizon)])
    assert isinstance(found, Backlog)
    return found


@pytest.mark.parametrize("name", NAMES)
async def test_jobs_are_counted_by_state(
    operator_redis: Redis, prefix: str, queue: QueueNamer, stock: ClientStarter, name: str
) -> None:
    client = await stock()
    queue("payments")
    await client.work(name, {"hangs": hangs()}, concurrency=1)
    await client.add(name, "hangs")
    await client.heard("started", name="hangs")
    for _ in range(2):
        await client.add(name, "waits")
    for _ in range(3):
        await client.add(name, "matters", priority=5)
    before = now_ms()
    for delay in (30_000, HOUR, 2 * HOUR):
        await client.add(name, "later", delay=delay)
    found = await read(operator_redis, prefix, name)
    after = now_ms()
    assert (found.known, found.paused) == (True, False)
    assert (found.waiting, found.prioritized, found.active) == (2, 3, 1)
    assert (found.delayed, found.due) == (3, 1)
    assert found.next_in is not None
    assert HOUR - (after - before) <= found.next_in <= HOUR
    assert found.demand == 7
    assert found.event == await Store(operator_redis, prefix).streams.newest_event(name)

    assert (await read(operator_redis, prefix, name, 0)).due == 0
    everything = await read(operator_redis, prefix, name, 3 * HOUR)
    assert (everything.due, everything.next_in) == (3, None)


async def test_a_due_job_counts_before_it_is_promoted(
    redis: Redis, operator_redis: Redis, prefix: str, queue: QueueNamer, stock: ClientStarter
) -> None:
    client = await stock()
    await client.add(queue("payments"), "soon", delay=1)
    # Due by the millisecond in which it is asked, or a later one.
    (job,) = await redis.zrange(f"{prefix}:payments:delayed", 0, 0)
    score = await redis.zscore(f"{prefix}:payments:delayed", str(job))
    assert score is not None
    while now_ms() < score // 4096:
        pass
    assert (await read(operator_redis, prefix, "payments", 0)).due == 1


@pytest.mark.parametrize("name", NAMES)
async def test_a_paused_queue_is_reported(
    operator_redis: Redis, prefix: str, queue: QueueNamer, stock: ClientStarter, name: str
) -> None:
    client = await stock()
    queue("payments")
    await client.add(name, "waits")
    await client.manage(name, "pause")
    await client.add(name, "waits too")
    found = await read(operator_redis, prefix, name)
    assert (found.paused, found.waiting, found.demand) == (True, 2, 0)
    before = found.event
    await client.manage(name, "resume")
    found = await read(operator_redis, prefix, name)
    assert (found.paused, found.waiting, found.demand) == (False, 2, 2)
    assert found.event != before  # so that whoever listens hears of it


async def test_a_queue_that_does_not_exist_is_unknown_and_empty(
    operator_redis: Redis, prefix: str
) -> None:
    found = await read(operator_redis, prefix, "nowhere:compensation")
    assert found == Backlog(False, False, 0, 0, 0, 0, 0, None, "0-0")


async def test_a_corrupt_queue_does_not_affect_others(
    redis: Redis,
    operator_redis: Redis,
    prefix: str,
    queue: QueueNamer,
    start_client: Callable[[str], Awaitable[StockClient]],
) -> None:
    client = await start_client("bullmq6")
    await client.add(queue("payments"), "waits")
    await redis.set(f"{prefix}:{queue('corrupt')}:active", "no list")
    await redis.zadd(f"{prefix}:{queue('endless')}:delayed", {"never": float("inf")})
    names = ["corrupt", "endless", "payments"]
    corrupt, endless, found = await Store(operator_redis, prefix).queues.backlogs(
        [(n, 0) for n in names]
    )
    assert "WRONGTYPE" in str(corrupt)
    assert isinstance(endless, str)
    assert isinstance(found, Backlog)
    assert found.waiting == 1


async def test_waiting_returns_the_queues_with_new_events(
    operator_redis: Redis,
    prefix: str,
    queue: QueueNamer,
    start_client: Callable[[str], Awaitable[StockClient]],
) -> None:
    client = await start_client("bullmq6")
    queues = Store(operator_redis, prefix).queues
    quiet, busy = queue("quiet"), queue("busy")
    seen = {name: (await read(operator_redis, prefix, name)).event for name in (quiet, busy)}
    assert await queues.stirred(seen, 0.01) == set()
    await client.add(busy, "waits")
    assert await queues.stirred(seen, 2) == {busy}
