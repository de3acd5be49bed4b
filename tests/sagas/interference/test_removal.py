"""What the removal of a group leaves behind: nothing but its tombstone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup import Driver, JobGroups, connect
from testbed.servers.access import Access
from testbed.servers.redis import RedisServer
from testbed.servers.redis_kinds import prefix_for
from testbed.servers.stock import StockClient, fails_for_good
from testbed.support.fixtures import ClientStarter, QueueNamer
from testbed.support.sagas import Sagas, delete_residue, job, reached, undo


async def test_the_keys_of_queues_that_only_groups_used_go_with_the_group(
    redis_url: str, worker_url: str, prefix: str, redis: Redis
) -> None:
    client = await StockClient.start("python", worker_url, prefix)
    async with JobGroups.connect(redis_url, prefix) as groups:
        jobs = [job("charge", f"queue-{n}") for n in range(250)]
        order = await groups.add_group("order", jobs, {"charge": undo("refund")})
        for n in range(3):
            await client.work(f"queue-{n}", {"charge": fails_for_good()} if n == 2 else None)
        await client.work("queue-0:compensation")
        await client.work("queue-1:compensation")
        driver = asyncio.create_task(Driver(groups.store).run())
        await reached(groups.store, order.group_id, ended=True)
        driver.cancel()
        await asyncio.wait([driver])
        await client.end()
        await groups.remove_group(order.group_id)
    left = {key.removeprefix(f"{prefix}:") async for key in redis.scan_iter(f"{prefix}:*")}
    # Workers check for stalled jobs as long as they run; the key expires.
    assert not [k for k in left if k.startswith("queue-") and not k.endswith(":stalled-check")]
    await delete_residue(redis, prefix)


@pytest.mark.parametrize("flavour", ["bullmq5", "bullmq6"])
async def test_a_queue_that_a_node_client_opened_keeps_only_its_settings(
    redis_url: str, worker_url: str, prefix: str, redis: Redis, flavour: str
) -> None:
    client = await StockClient.start(flavour, worker_url, prefix)
    async with JobGroups.connect(redis_url, prefix) as groups:
        await client.manage("payments", "getJobCounts")
        order = await groups.add_group("order", [job("charge")])
        await groups.cancel_group(order.group_id)
        await groups.remove_group(order.group_id)
    await client.end()
    left = {key.removeprefix(f"{prefix}:") async for key in redis.scan_iter(f"{prefix}:payments*")}
    assert left == {"payments:meta"}
    assert not await redis.hexists(f"{prefix}:payments:meta", "groups")
    await delete_residue(redis, prefix)


async def test_a_queue_that_others_use_is_kept(
    sagas: Sagas, start_client: ClientStarter, queue: QueueNamer
) -> None:
    client = await start_client("bullmq6")
    await client.work(queue("payments"))
    await client.add("payments", "foreign")
    await client.heard("completed", name="foreign")
    order = await sagas.add(job("charge"))
    await sagas.ends(order.group_id)
    await sagas.groups.remove_group(order.group_id)
    assert await sagas.redis.exists(f"{sagas.prefix}:payments:meta") == 1
    assert await sagas.redis.exists(f"{sagas.prefix}:payments:events") == 1


async def test_the_events_of_a_running_group_survive_the_removal_of_another(sagas: Sagas) -> None:
    running = await sagas.add(job("charge", "inventory"), job("reserve"))
    other = await sagas.add(job("reserve"))
    await sagas.groups.cancel_group(other.group_id)
    await sagas.redis.lrem(f"{sagas.prefix}:payments:wait", 1, running.jobs[1].job_id)
    await sagas.redis.delete(running.jobs[1].job_key)
    await sagas.groups.remove_group(other.group_id)
    events: Any = await sagas.redis.xrange(f"{sagas.prefix}:payments:events")
    assert running.jobs[1].job_id in {fields.get("jobId") for _, fields in events}


async def test_the_keys_of_members_with_children_are_deleted(
    sagas: Sagas, redis: Redis, prefix: str
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    for member in order.jobs:
        for part in ("processed", "failed"):
            await redis.hset(f"{member.job_key}:{part}", "child", "1")
        await redis.sadd(f"{member.job_key}:dependencies", "child")
        await redis.zadd(f"{member.job_key}:unsuccessful", {"child": 1})
    await sagas.groups.cancel_group(order.group_id)
    await sagas.groups.remove_group(order.group_id)
    assert await sagas.keys(f"*{order.group_id}*") == [f"_jobgroups:tomb:{order.group_id}"]


async def test_a_group_that_is_partly_removed_keeps_its_state(
    sagas: Sagas, client: StockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [*(job("charge") for _ in range(210)), job("reserve", "inventory")]
    order = await sagas.add(*jobs, undos={"charge": undo("refund")})
    await client.work("payments", concurrency=50)
    await sagas.reaches(order.group_id, completed_count=210)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work("payments:compensation", concurrency=50)
    ended = await sagas.ends(order.group_id)
    assert ended.undone_count == 210
    store, calls = sagas.groups.store, list[str]()
    remove = store._remove

    async def once(*keys: Any, **slots: Any) -> Any:
        if calls:
            raise ConnectionResetError
        calls.append(order.group_id)
        return await remove(*keys, **slots)

    monkeypatch.setattr(store, "_remove", once)
    with pytest.raises(ConnectionResetError):
        await sagas.groups.remove_group(order.group_id)
    monkeypatch.undo()
    await client.manage("inventory", "retryJobs")
    for _ in range(2):
        await sagas.driver.resync()
        assert await sagas.read(order.group_id) == ended
    await sagas.groups.remove_group(order.group_id)
    assert await sagas.keys(f"*{order.group_id}*") == [f"_jobgroups:tomb:{order.group_id}"]


async def test_a_group_is_removed_from_a_full_redis(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        async with JobGroups.connect(server.url) as groups:
            order = await groups.add_group("order", [job("charge"), job("reserve")])
            await groups.cancel_group(order.group_id)
            await groups.store.redis.config_set("maxmemory", 1)
            await groups.remove_group(order.group_id)
            assert await groups.get_group_state(order.group_id) is None
            assert await groups.store.redis.exists(f"bull:_jobgroups:tomb:{order.group_id}") == 1


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a/b"])
async def test_a_prefix_may_contain_quotes(
    access: Access, redis_url: str, worker_url: str, admin_url: str, name: str, flavour: str
) -> None:
    prefix = prefix_for(redis_url, name)
    access.grant(prefix)
    client = await StockClient.start(flavour, worker_url, prefix)
    async with JobGroups.connect(redis_url, prefix) as groups:
        order = await groups.add_group(
            "order", [job("charge"), job("reserve", "inventory")], {"charge": undo("refund")}
        )
        for queue in ("payments", "payments:compensation"):
            await client.work(queue)
        await client.heard("completed", name="charge")
        await client.work("inventory", {"reserve": fails_for_good()})
        await client.heard("failed", name="reserve")
        await groups.store.wakeups.settle(limit=10)
        await client.heard("completed", name="refund")
        assert (await groups.wait_for_group(order.group_id, 60)).state == "FAILED"
        await client.end()
        await groups.remove_group(order.group_id)
    async with connect(admin_url, prefix) as redis:
        # A pattern would take the backslash for an escape.
        left = [key async for key in redis.scan_iter(count=1000) if key.startswith(f"{prefix}:")]
        assert not [key for key in left if order.group_id in key and ":tomb:" not in key]
        await redis.delete(*left)
