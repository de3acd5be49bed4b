"""Queues that are paused or long, by whichever version: no group hangs and no call spins."""

import asyncio

import pytest
from redis.asyncio import Redis

from jobgroup.store.reviews import Cursor
from testbed.servers.stock import FLAVOURS, StockClient
from testbed.support.fixtures import ClientStarter, QueueNamer
from testbed.support.sagas import Sagas, job, undo


@pytest.mark.parametrize("pausing", FLAVOURS)
@pytest.mark.parametrize("resuming", FLAVOURS)
async def test_no_version_loses_jobs_because_of_members_in_a_paused_queue(
    sagas: Sagas, start_client: ClientStarter, queue: QueueNamer, pausing: str, resuming: str
) -> None:
    """5.x moves the lists of a queue when it pauses or resumes, and destroys the other list."""
    clients = {flavour: await start_client(flavour) for flavour in FLAVOURS}
    orders = []
    for flavour, producer in clients.items():
        name = queue(f"of-{flavour}")
        await clients[pausing].manage(name, "pause")
        orders.append(await sagas.add(job("charge", name)))
        await producer.add(name, f"foreign-{flavour}")
        orders.append(await sagas.add(job("charge", name)))
        await clients[resuming].manage(name, "resume")
        await clients["bullmq6"].work(name)
        await clients["bullmq6"].heard("completed", name=f"foreign-{flavour}")
    for order in orders:
        assert (await sagas.ends(order.group_id)).state == "COMPLETED"


async def test_members_added_to_a_paused_queue_are_moved_to_its_list_in_their_order(
    sagas: Sagas, client: StockClient, queue: QueueNamer
) -> None:
    payments = f"{sagas.prefix}:{queue('payments')}"
    await client.manage("payments", "pause")
    order = await sagas.add(*(job("charge") for _ in range(1500)), job("urgent", lifo=True))
    await client.manage("payments", "resume")
    *others, urgent = (member.job_id for member in order.jobs)
    for _ in range(2):
        await sagas.driver.resync()
    # Workers take from the end of the list.
    assert await sagas.redis.lrange(f"{payments}:wait", 0, -1) == [*others[::-1], urgent]
    assert not await sagas.redis.exists(f"{payments}:prioritized")


async def test_a_member_whose_list_was_destroyed_fails_its_group(
    sagas: Sagas, start_client: ClientStarter, queue: QueueNamer
) -> None:
    queue("payments")
    newer, older = await start_client("bullmq6"), await start_client("bullmq5")
    order = await sagas.add(
        job("charge"), job("reserve", "inventory"), undos={"reserve": undo("restock")}
    )
    await newer.work("inventory")
    await newer.heard("completed", name="reserve")
    await newer.manage("payments", "pause")
    await older.add("payments", "foreign")  # goes to the list `paused`
    await older.manage("payments", "resume")  # replaces the list `wait` with it
    assert await sagas.redis.lpos(f"{sagas.prefix}:payments:wait", order.jobs[0].job_id) is None
    await newer.work("inventory:compensation")
    assert await sagas.driver.resync() == 1
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 1)
    assert ended.reason == "removed from its queue"
    assert not await sagas.redis.exists(order.jobs[0].job_key)
    await older.work("payments")
    await older.heard("completed", name="foreign")


async def test_a_member_is_missed_in_a_list_of_older_jobs(
    sagas: Sagas, redis: Redis, queue: QueueNamer
) -> None:
    """No worker takes the older jobs, so the member would wait behind them for ever."""
    wait = f"{sagas.prefix}:{queue('payments')}:wait"
    order = await sagas.add(job("charge"))
    await sagas.stop()
    await redis.delete(wait)
    await redis.lpush(wait, *(f"older-{n}" for n in range(1500)))
    sagas.drive(resync_seconds=0.05)
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.reason) == ("FAILED", "removed from its queue")
    await redis.delete(wait)


async def test_a_page_of_a_review_reads_a_bounded_number_of_jobs(
    sagas: Sagas, redis: Redis, queue: QueueNamer
) -> None:
    await sagas.stop()
    queues = [queue(f"queue-{n}") for n in range(45)]
    for name in queues:
        await sagas.add(job("charge", name))
        await redis.rpush(f"{sagas.prefix}:{name}:wait", *(f"foreign-{n}" for n in range(900)))
    reviews = sagas.groups.store.reviews
    page = await reviews.review("ACTIVE", Cursor())
    assert page.cursor
    assert 30 <= len(page.queues) < 40
    rest = await reviews.review("ACTIVE", page)
    assert not rest.cursor
    assert sorted([*page.queues, *rest.queues]) == sorted(queues)
    assert not page.due
    assert not rest.due


async def test_a_review_moves_a_bounded_number_of_jobs(
    sagas: Sagas, redis: Redis, queue: QueueNamer
) -> None:
    await sagas.stop()
    for n in range(8):
        await sagas.add(job("charge", queue(f"queue-{n}")))
        held = {f"held-{n}": 0 for n in range(900)}
        await redis.zadd(f"{sagas.prefix}:queue-{n}:prioritized", held)
    left = []
    for _ in range(2):
        await sagas.groups.store.reviews.review("ACTIVE", Cursor())
        left.append(
            sum([await redis.zcard(f"{sagas.prefix}:queue-{n}:prioritized") for n in range(8)])
        )
    assert left == [8 * 900 - 5000, 0]


async def test_jobs_that_a_resume_left_behind_are_released(
    sagas: Sagas, start_client: ClientStarter, queue: QueueNamer
) -> None:
    """The Python client moves at most 7,000 jobs from `paused` to `wait`, once."""
    python, older = await start_client("python"), await start_client("bullmq5")
    newer = await start_client("bullmq6")

    async def add_members() -> list[str]:
        members = [job("charge", queue("payments"))] * 500
        return [(await sagas.add(*members)).group_id for _ in range(15)]

    async def lengths() -> list[int]:
        lists = (f"{sagas.prefix}:payments:{name}" for name in ("wait", "paused"))
        return [await sagas.redis.llen(each) for each in lists]

    orders = await add_members()
    await older.add("payments", "foreign")
    await older.manage("payments", "pause")  # moves all jobs to the list `paused`
    orders += await add_members()  # these wait elsewhere
    await python.add("payments", "another")
    assert await lengths() == [1, 7501]
    await python.manage("payments", "resume")
    assert await lengths() == [7001, 501]

    await newer.work("payments", concurrency=50)
    sagas.drive(resync_seconds=0.05)
    for order in orders:
        assert (await sagas.ends(order)).state == "COMPLETED"
    for name in ("foreign", "another"):
        await newer.heard("completed", name=name)
    assert await lengths() == [0, 0]


@pytest.mark.parametrize("flavour", ["bullmq6"])
async def test_a_group_in_a_list_that_is_too_long_to_search_ends(
    sagas: Sagas, redis: Redis, prefix: str, client: StockClient
) -> None:
    wait, filler = f"{prefix}:payments:wait", [f"filler-{n}" for n in range(1000)]

    async def fill() -> None:
        pipeline = redis.pipeline()
        for _ in range(200):
            pipeline.lpush(wait, *filler)
        await pipeline.execute()

    await fill()
    order = await sagas.add(job("charge"), job("charge"), undos={"charge": undo("refund")})
    other = await sagas.add(job("notify", "mails"))
    await fill()
    await client.manage("payments", "pause")
    settles = sagas.driver.counters.settles
    assert (await sagas.groups.cancel_group(order.group_id)).state == "FAILED"
    ended = await sagas.ends(order.group_id)
    assert (ended.cancelled_count, ended.undo_count) == (2, 0)
    assert sagas.driver.counters.settles - settles < 10
    await client.work("mails")
    assert (await sagas.ends(other.group_id)).state == "COMPLETED"

    async with asyncio.timeout(60):
        await sagas.groups.remove_group(order.group_id)
    # Their entries are still in the list, so their hashes are kept until a worker takes them.
    assert await redis.exists(*(member.job_key for member in order.jobs)) == 2
    for name in filler:
        await redis.lrem(wait, 0, name)
    await client.work("payments")
    await client.manage("payments", "resume")
    for member in order.jobs:
        await client.heard("failed", id=member.job_id)
    assert client.count("started", name="charge") == 0
    assert await redis.exists(*(member.job_key for member in order.jobs)) == 0
