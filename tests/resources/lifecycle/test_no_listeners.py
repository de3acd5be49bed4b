"""A JobGroup whose undos wait where nobody listens says so, and stops when somebody does."""

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from jobgroup import Store
from jobgroup.listeners import has_listener
from testbed.fixtures import ClientStarter, QueueNamer
from testbed.resources import Resources, manifest, until
from testbed.sagas import job, undo
from testbed.stock import StockClient, fails_for_good, hangs
from testbed.waiting import eventually

Worker = Callable[..., Awaitable[StockClient]]


def said(resources: Resources) -> list[str]:
    found = resources.status("order").get("conditions", [])
    return [each["message"] for each in found if each["type"] in ("Ready", "Reconciling")]


async def test_undos_that_nobody_runs_are_told_of(resources: Resources, worker: Worker) -> None:
    queue = f"{resources.namespace}-pay"
    client = await worker()
    await client.work(queue, {"refuse": fails_for_good()})
    jobs = [job(f"charge-{n}", queue) for n in range(3)]
    undos = {each["name"]: undo("refund") for each in jobs}
    resources.apply(manifest("order", *jobs, job("refuse", queue, delay=1500), undos=undos))
    unheard = f"3 undos wait in {queue}:compensation; no worker is listening"
    until(
        lambda: said(resources) == [f"given up, 0 of 3 undone; {unheard}"] * 2,
        lambda: f"it says {said(resources)}",
    )
    # Undos at work have somebody who listens, though none has ended.
    await client.work(f"{queue}:compensation", {"refund": hangs()}, concurrency=3)
    until(
        lambda: said(resources) == ["given up, 0 of 3 undone"] * 2,
        lambda: f"it still says {said(resources)}",
    )
    await client.release("refund")
    resources.reaches("order", state="FAILED", undone="3/3")


@pytest.mark.parametrize("name", ["payments", "payments:compensation"])
async def test_every_stock_worker_is_seen(
    redis: Redis, prefix: str, queue: QueueNamer, stock: ClientStarter, name: str
) -> None:
    queue("payments")
    client = await stock()

    async def is_seen() -> bool:
        names = await Store(redis, prefix).queues.connections()
        return names is not None and has_listener(prefix, name, names)

    assert not await is_seen()
    await client.work(name)
    await eventually(is_seen)
    await client.close()

    async def is_gone() -> bool:
        return not await is_seen()

    await eventually(is_gone)


async def test_what_redis_does_not_tell_is_not_known(redis: Redis, prefix: str) -> None:
    await redis.acl_setuser(
        prefix, enabled=True, nopass=True, keys=["*"], commands=["+@all", "-client"]
    )
    place = redis.connection_pool.connection_kwargs
    try:
        async with Redis(
            host=place["host"], port=place["port"], username=prefix, password=prefix
        ) as limited:
            assert await Store(limited, prefix).queues.connections() is None
    finally:
        await redis.acl_deluser(prefix)
