"""A JobGroup reports jobs and undos that wait without a worker, until there is one."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from jobgroup import Store
from jobgroup.resource.listeners import NO_WORKER, NO_WORKER_OR_QUEUE, has_worker
from testbed.servers.stock import StockClient, fails_for_good, hangs
from testbed.support.fixtures import ClientStarter, QueueNamer
from testbed.support.resources import Resources, manifest, until
from testbed.support.sagas import job, undo
from testbed.support.stages import PAY, Stage
from testbed.support.waiting import eventually

HASTY = Path(__file__).with_name("hasty_operator.py")
Worker = Callable[..., Awaitable[StockClient]]


def said(resources: Resources) -> list[str]:
    found = resources.status("order").get("conditions", [])
    return [each["message"] for each in found if each["type"] in ("Ready", "Reconciling")]


@pytest.mark.parametrize("named", [False, True])
async def test_undos_without_a_worker_are_reported(
    resources: Resources, worker: Worker, named: bool
) -> None:
    queue = f"{resources.namespace}-pay"
    refunds = f"{resources.namespace}-refunds" if named else f"{queue}:compensation"
    client = await worker()
    await client.work(queue, {"refuse": fails_for_good()})
    jobs = [job(f"charge-{n}", queue) for n in range(3)]
    undos = {each["name"]: {**undo("refund"), "queueName": refunds} for each in jobs}
    resources.apply(manifest("order", *jobs, job("refuse", queue, delay=1500), undos=undos))
    unheard = f"3 undos wait in {refunds}; {NO_WORKER}"
    until(
        lambda: said(resources) == [f"compensating, 0 of 3 undone; {unheard}"] * 2,
        lambda: f"it says {said(resources)}",
    )
    resources.condition("order", "Reconciling", "True", "NoUndoWorker")
    # Active undos have a worker, even if no undo has ended yet.
    await client.work(refunds, {"refund": hangs()}, concurrency=3)
    until(
        lambda: said(resources) == ["compensating, 0 of 3 undone"] * 2,
        lambda: f"it still says {said(resources)}",
    )
    resources.condition("order", "Reconciling", "True", "Compensating")
    await client.release("refund")
    resources.reaches("order", state="FAILED", undone="3/3")


async def test_jobs_without_a_worker_are_reported_until_there_is_one(stage: Stage) -> None:
    resources = stage.resources
    client = await stage.client()
    await client.work("payments")
    wrong = f"1 of 2 jobs completed; 1 job waits in shiping; {NO_WORKER_OR_QUEUE}"
    event = ("Warning", "NoWorker", f"1 job waits in shiping; {NO_WORKER_OR_QUEUE}")
    with stage.operator(script=HASTY):
        resources.apply(manifest("order", PAY, job("ship", "shiping")))
        until(lambda: said(resources) == [wrong] * 2, lambda: f"it says {said(resources)}")
        resources.condition("order", "Reconciling", "True", "NoWorker")
        assert resources.events("order") == [event]
    version = resources.get("order")["metadata"]["resourceVersion"]
    with stage.operator(script=HASTY):
        # When another object is reported, this one was reconciled by the new process.
        resources.apply(manifest("next", job("ship", "shiping")))
        resources.condition("next", "Reconciling", "True", "NoWorker")
        assert resources.get("order")["metadata"]["resourceVersion"] == version
        assert resources.events("order") == [event]
        await client.work("shiping", {"ship": hangs()}, concurrency=2)
        resources.condition("order", "Reconciling", "True", "Running")
        await client.release("ship")
        resources.reaches("order", state="COMPLETED")


@pytest.mark.parametrize("name", ["payments", "payments:compensation"])
async def test_every_stock_worker_is_recognized(
    redis: Redis, prefix: str, queue: QueueNamer, stock: ClientStarter, name: str
) -> None:
    queue("payments")
    client = await stock()

    async def is_seen() -> bool:
        names = await Store(redis, prefix).queues.connections()
        return names is not None and has_worker(prefix, name, names)

    assert not await is_seen()
    await client.work(name)
    await eventually(is_seen)
    await client.close()

    async def is_gone() -> bool:
        return not await is_seen()

    await eventually(is_gone)


async def test_nothing_is_reported_if_redis_does_not_list_connections(
    redis: Redis, prefix: str
) -> None:
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
