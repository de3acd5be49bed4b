"""The examples run unchanged: one order completes, one fails and is undone."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis.asyncio import Redis

from jobgroup import Driver, GroupState, JobGroups
from jobgroup.cli.manifest import read_plans
from jobgroup.model import names
from jobgroup.resource.listeners import has_worker
from jobgroup.store.queues import Queues
from testbed.servers.apiserver import ApiServer
from testbed.servers.processes import leashed
from testbed.servers.redis import RedisServer
from testbed.servers.stock import CLIENTS, StockClient
from testbed.support.chart import render
from testbed.support.examples import BOOKS, ORDERS, book_keys, node_worker, python_worker
from testbed.support.fixtures import QueueNamer
from testbed.support.sagas import all_groups
from testbed.support.waiting import PATIENCE_SECONDS, eventually

ROOT = ORDERS.parents[1]
ORDER = (ORDERS / "order.yaml").read_text()
REFUSED = (ORDERS / "order-refused.yaml").read_text()
QUEUES = ("payments", "inventory", "shipping", "refunds", "releases", "cancellations")
PAYMENT = {"orderId": "9", "amount": 5}
STOCK = {"orderId": "9", "sku": "teapot", "quantity": 1}
PARCEL = {"orderId": "9", "city": "Oslo"}
# Queue, job, its data, the queue of its undo, its undo, and what the job returns.
TWICE = [
    ("payments", "charge-payment", PAYMENT, "refunds", "refund-payment", "paymentId", "pay-9"),
    ("inventory", "reserve-stock", STOCK, "releases", "release-stock", "reservationId", "res-9"),
    ("shipping", "book-shipping", PARCEL, "cancellations", "cancel-shipping", "parcelId", "box-9"),
]

Worker = asyncio.subprocess.Process
Starter = Callable[..., Any]


@pytest.fixture
async def groups(redis_url: str, prefix: str, queue: QueueNamer) -> AsyncIterator[JobGroups]:
    """Drive groups during the test, and remove them and their keys afterwards."""
    for name in QUEUES:
        queue(name)
    async with JobGroups.connect(redis_url, prefix) as groups:
        driving = asyncio.create_task(Driver(groups.store).run())
        yield groups
        driving.cancel()
        await asyncio.wait([driving])
        redis, books = groups.store.redis, names.ledger_key(prefix)
        for group_id in await all_groups(redis, prefix):
            await groups.remove_group(group_id)
        left = [key async for key in redis.scan_iter(f"{books}:tomb:*")]
        left += [key async for key in redis.scan_iter(f"{prefix}-shop:*")]
        claimed = names.reviewer_key(prefix)
        await redis.delete(f"{books}:events", names.marker_key(prefix), claimed, *left)


@pytest.fixture(params=["node", "python"])
def worker(request: pytest.FixtureRequest, redis_url: str, prefix: str, tmp_path: Path) -> Starter:
    """Run the worker of the example; pytest runs the test once for each language."""
    command = node_worker(tmp_path) if request.param == "node" else python_worker()

    @asynccontextmanager
    async def running(**settings: str) -> AsyncIterator[Worker]:
        process = await asyncio.create_subprocess_exec(
            *leashed(command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "REDIS_URL": redis_url, "BULLMQ_PREFIX": prefix, **settings},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    return running


async def hear(process: Worker) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def leave(process: Worker) -> list[str]:
    """Stop a worker, and return the output that was not read yet."""
    process.send_signal(signal.SIGTERM)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().splitlines()


async def run(groups: JobGroups, text: str) -> GroupState:
    """Add the order of a file, as the command line does, and wait until it ends."""
    plans = read_plans(text, "order.yaml")
    assert await groups.store.create(plans) == [True]
    return await groups.wait_for_group(plans[0].group_id, PATIENCE_SECONDS)


async def books(groups: JobGroups, prefix: str) -> dict[str, dict[str, str]]:
    """Return the entries of the shop's books."""
    redis: Any = groups.store.redis
    return {book: await redis.hgetall(key) for book, key in book_keys(prefix).items()}


async def test_an_order_is_done_or_undone(groups: JobGroups, prefix: str, worker: Starter) -> None:
    async with worker() as process:
        assert await hear(process) == "working"
        done = await run(groups, ORDER)
        assert (done.state, done.completed_count, done.undo_count) == ("COMPLETED", 3, 0)
        undone = await run(groups, REFUSED)
        assert (undone.state, undone.completed_count) == ("FAILED", 2)
        assert undone.reason == "no carrier goes to Atlantis"
        assert (undone.undo_count, undone.undone_count) == (2, 2)
        assert sorted(await leave(process)) == [
            *[
                f"book-shipping failed: no carrier goes to Atlantis (attempt {n} of 3)"
                for n in (1, 2, 3)
            ],
            "booked a parcel to Lisbon for order 123",
            "charged 99.99 for order 123",
            "charged 99.99 for order 124",
            "refunded pay-124: order cancelled",
            "released res-124",
            "reserved 2 of teapot for order 123",
            "reserved 2 of teapot for order 124",
        ]
    assert await books(groups, prefix) == BOOKS


async def test_what_runs_twice_is_done_and_undone_once(
    groups: JobGroups,
    prefix: str,
    worker: Starter,
    start_client: Callable[[str], Awaitable[StockClient]],
) -> None:
    producer = await start_client("bullmq6")
    note = {"note": "no"}
    async with worker() as process:
        assert await hear(process) == "working"
        for queue, name, data, undos, undo, field, entry in TWICE:
            told = {"originalReturnValue": {field: entry}, "compensationData": note}
            said = []
            for where, what, about in ((queue, name, data), (undos, undo, told)):
                for _ in range(2):
                    await producer.add(where, what, about)
                    said.append(await hear(process))
            assert "order 9" in said[0]
            assert said[1] == f"{entry} is in the books already"
            assert entry in said[2]
            assert said[3] == f"{entry} is in the books no more"
        await leave(process)
    assert not any((await books(groups, prefix)).values())


async def test_a_job_of_an_unknown_name_fails_at_once_and_the_others_are_undone(
    groups: JobGroups, worker: Starter
) -> None:
    charge = {"name": "charge-payment", "queueName": "payments", "data": PAYMENT}
    sing = {"name": "sing", "queueName": "payments", "opts": {"attempts": 3}}
    refund = {"name": "refund-payment", "queueName": "refunds", "data": {"note": "no song"}}
    undos = {"charge-payment": refund}
    order = {"name": "song", "jobs": [charge, sing], "compensation": undos}
    async with worker() as process:
        ended = await run(groups, json.dumps(order))
        assert (ended.state, ended.undone_count) == ("FAILED", 1)
        assert ended.reason == "no worker of payments knows how to sing"
        assert ended.failed_attempts == 1
        await leave(process)


async def test_a_job_without_attempts_fails_in_attempt_1_of_1(
    groups: JobGroups, worker: Starter
) -> None:
    sing = {"name": "sing", "queueName": "payments"}
    async with worker() as process:
        await run(groups, json.dumps({"name": "song", "jobs": [sing]}))
        said = "sing failed: no worker of payments knows how to sing (attempt 1 of 1)"
        assert said in await leave(process)


async def test_a_deployment_works_on_the_queue_it_is_for(
    groups: JobGroups, prefix: str, worker: Starter
) -> None:

    async def is_there() -> bool:
        found = await Queues(groups.store.redis, prefix).connections() or ()
        return {name for name in QUEUES if has_worker(prefix, name, found)} == {"refunds"}

    async with worker(QUEUES="refunds") as process:
        await eventually(is_there)
        await leave(process)


async def test_a_worker_that_is_stopped_while_it_fetches_a_job_finishes_that_job(
    prefix: str, worker: Starter, tmp_path: Path
) -> None:
    base = f"{prefix}:payments"
    job: dict[Any, Any] = {"name": "charge-payment", "data": json.dumps(PAYMENT), "opts": "{}"}
    # A Redis of its own, because all writers to it are paused.
    with RedisServer(tmp_path) as server:
        settings = {"REDIS_URL": server.url, "QUEUES": "payments", "WORK_MS": "500"}
        async with (
            Redis.from_url(server.url, decode_responses=True) as redis,
            worker(**settings) as process,
        ):

            async def asks(command: str) -> None:
                """Wait until the worker has sent this command and waits for the reply."""

                async def last() -> bool:
                    return any(each["cmd"] == command for each in await redis.client_list())

                await eventually(last)

            assert await hear(process) == "working"
            await asks("bzpopmin")
            # The worker wakes up at once, and gets no reply when it asks for the job.
            pipeline = redis.pipeline(transaction=False)
            pipeline.hset(
                f"{base}:late", mapping={**job, "timestamp": 1, "delay": 0, "priority": 0}
            )
            pipeline.lpush(f"{base}:wait", "late")
            pipeline.zadd(f"{base}:marker", {"0": 0})
            pipeline.client_pause(60_000, all=False)
            await pipeline.execute()
            await asks("evalsha")
            process.send_signal(signal.SIGTERM)
            await redis.client_unpause()
            _, said = await process.communicate()
            assert (process.returncode, said) == (0, b"")
            assert await redis.lrange(f"{base}:active", 0, -1) == []
            assert await redis.zrange(f"{base}:completed", 0, -1) == ["late"]


async def test_a_worker_refuses_a_queue_it_has_no_code_for(worker: Starter) -> None:
    async with worker(QUEUES="payments,mails") as process:
        _, said = await process.communicate()
        assert process.returncode != 0
        assert said.decode().startswith("QUEUES names mails; there are payments,refunds,inv")


@pytest.mark.parametrize("flavour", ["node", "python"])
def test_the_deployments_are_accepted(
    jobgroup_crd: ApiServer, namespace: str, flavour: str
) -> None:
    file = ORDERS / f"deployment-{flavour}.yaml"
    jobgroup_crd.kubectl("-n", namespace, "apply", "--dry-run=server", "-f", str(file))
    deployment, pool = yaml.safe_load_all(file.read_text())
    assert pool["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {each["name"]: each.get("value") or each["valueFrom"] for each in container["env"]}
    assert env["QUEUES"] == pool["spec"]["queueName"]
    assert env["REDIS_URL"] == {"secretKeyRef": {"name": "order-redis", "key": "url"}}
    assert "replicas" not in deployment["spec"]


def test_the_workers_use_the_bundled_redis_of_the_chart() -> None:
    objects = render(redis={"redis": {"bundled": {"enabled": True}}})
    (operator,) = [each for each in objects if each["kind"] == "Deployment"]
    env = operator["spec"]["template"]["spec"]["containers"][0]["env"]
    (url,) = [each["value"] for each in env if each["name"] == "REDIS_URL"]
    secret = yaml.safe_load((ORDERS / "redis.yaml").read_text())
    assert (secret["metadata"]["name"], secret["stringData"]) == ("order-redis", {"url": url})


def test_npm_installs_what_the_worker_imports_in_versions_that_are_tested() -> None:
    asked = json.loads((ORDERS / "package.json").read_text())["dependencies"]
    imported = re.findall(r'from "(.+)"', (ORDERS / "worker.mjs").read_text())
    assert sorted(asked) == sorted(imported) == ["bullmq", "ioredis"]
    locked = json.loads((CLIENTS / "package-lock.json").read_text())["packages"]
    tested = {"bullmq": "node_modules/bullmq6", "ioredis": "node_modules/ioredis"}
    assert asked == {name: f"^{locked[path]['version']}" for name, path in tested.items()}
