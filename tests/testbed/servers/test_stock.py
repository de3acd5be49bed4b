"""Stock BullMQ clients of all three flavours run jobs as a test defines."""

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from testbed.servers.stock import FLAVOURS, StockClient, fails, fails_for_good, hangs, returns
from testbed.support.fixtures import ClientStarter, QueueNamer
from testbed.support.waiting import eventually

SHORT_LOCK = {"lockDuration": 1000, "stalledInterval": 500}


@pytest.mark.parametrize("worker", FLAVOURS)
@pytest.mark.parametrize("producer", FLAVOURS)
async def test_a_job_of_any_producer_is_run_by_any_worker(
    start_client: Callable[[str], Awaitable[StockClient]],
    redis: Redis,
    prefix: str,
    queue: QueueNamer,
    producer: str,
    worker: str,
) -> None:
    name = queue("payments")
    made_by, run_by = await start_client(producer), await start_client(worker)
    job = await made_by.add(name, "charge", {"amount": 99.5, "to": "Zoë"})
    await run_by.work(name, {"charge": returns({"ok": True})})
    started = await run_by.heard("started", id=job)
    assert started["data"] == {"amount": 99.5, "to": "Zoë"}
    await run_by.heard("completed", id=job)
    assert await redis.hget(f"{prefix}:{name}:{job}", "returnvalue") in (
        '{"ok":true}',
        '{"ok": true}',
    )


async def test_it_fails_as_often_as_scripted(stock: ClientStarter, queue: QueueNamer) -> None:
    client = await stock()
    await client.work(queue("q"), {"flaky": fails(2, reason="busy", then=7)})
    job = await client.add("q", "flaky", attempts=3)
    await client.heard("completed", id=job)
    assert [r["attempt"] for r in client.reports if r["event"] == "started"] == [0, 1, 2]
    assert client.count("failed", reason="busy") == 2


async def test_it_fails_for_good(
    stock: ClientStarter, redis: Redis, prefix: str, queue: QueueNamer
) -> None:
    client = await stock()
    await client.work(queue("q"), {"doomed": fails_for_good("no such account")})
    job = await client.add("q", "doomed", attempts=5)
    await client.heard("failed", id=job, reason="no such account")
    await eventually(lambda: is_in(redis, f"{prefix}:q:failed", job))
    assert client.count("started") == 1


async def test_it_hangs_until_released(
    stock: ClientStarter, redis: Redis, prefix: str, queue: QueueNamer
) -> None:
    client = await stock()
    await client.work(queue("q"), {"slow": hangs(then=returns(1))}, concurrency=2)
    slow, quick = await client.add("q", "slow"), await client.add("q", "quick")
    await client.heard("started", id=slow)
    await client.heard("completed", id=quick)
    assert await redis.lrange(f"{prefix}:q:active", 0, -1) == [slow]
    await client.release("slow")
    await client.heard("completed", id=slow)


async def test_the_job_of_a_killed_worker_is_run_by_another(
    stock: ClientStarter, queue: QueueNamer
) -> None:
    first, second = await stock(own=True), await stock()
    await first.work(queue("q"), {"slow": hangs()}, **SHORT_LOCK)
    job = await first.add("q", "slow")
    await first.heard("started", id=job)
    await first.kill()
    await second.work("q", {"slow": returns(2)}, **SHORT_LOCK)
    await second.heard("completed", id=job)


async def test_a_frozen_worker_loses_its_lock_and_its_late_result_is_rejected(
    stock: ClientStarter, redis: Redis, prefix: str, queue: QueueNamer
) -> None:
    first, second = await stock(own=True), await stock()
    await first.work(queue("q"), {"slow": hangs(then=returns("first"))}, **SHORT_LOCK)
    job = await first.add("q", "slow")
    await first.heard("started", id=job)
    first.freeze()
    await second.work("q", {"slow": returns("second")}, **SHORT_LOCK)
    await second.heard("completed", id=job)
    await first.release("slow")
    first.thaw()
    await first.heard("error")
    assert await redis.hget(f"{prefix}:q:{job}", "returnvalue") == '"second"'


async def test_closing_finishes_the_active_job(
    stock: ClientStarter, redis: Redis, prefix: str, queue: QueueNamer
) -> None:
    client = await stock()
    await client.work(queue("q"), {"slow": hangs()})
    job = await client.add("q", "slow")
    await client.heard("started", id=job)
    await client.release("slow")
    await client.close()
    assert await is_in(redis, f"{prefix}:q:completed", job)


async def test_an_unknown_order_ends_the_wait(stock: ClientStarter) -> None:
    client = await stock()
    await client.order("dance")
    with pytest.raises(RuntimeError, match="never reported danced"):
        await client.heard("danced")


async def test_a_dead_client_ends_the_wait(stock: ClientStarter) -> None:
    client = await stock(own=True)
    await client.kill()
    with pytest.raises(RuntimeError, match="never reported anything"):
        await client.heard("anything")


async def is_in(redis: Redis, key: str, job: str) -> bool:
    return await redis.zscore(key, job) is not None
