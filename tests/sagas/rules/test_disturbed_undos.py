"""Undos are retried and resolved while other clients change keys of the group and of its queues."""

from typing import Any

import pytest

from jobgroup.errors import InvalidJobStateError
from jobgroup.model import names
from testbed.servers.stock import StockClient, fails, fails_for_good
from testbed.support.fixtures import ClientStarter, QueueNamer
from testbed.support.sagas import Sagas, job, undo
from testbed.support.waiting import eventually
from tests.sagas.rules.test_retried_undos import JOBS, UNDO_QUEUE, UNDOS, failed

REASON = "refunded by hand"


@pytest.mark.parametrize("verb", ["retry", "resolve"])
async def test_events_that_cannot_be_published_are_found_before_the_first_write(
    sagas: Sagas, client: StockClient, verb: str
) -> None:
    order = await failed(sagas, client, refund=fails_for_good())
    await client.end()
    await sagas.stop()
    events, kept = (f"{sagas.prefix}:payments:{key}" for key in ("events", "kept"))
    before = await sagas.read(order.group_id)
    await sagas.redis.rename(events, kept)
    await sagas.redis.set(events, "spoilt")
    groups, order_id = sagas.groups, order.group_id
    call = (
        groups.retry_undos(order_id)
        if verb == "retry"
        else groups.resolve_undo(order_id, "charge", REASON)
    )
    with pytest.raises(Exception, match="WRONGTYPE"):
        await call
    assert await sagas.read(order.group_id) == before
    assert await sagas.redis.llen(f"{sagas.prefix}:{UNDO_QUEUE}:wait") == 0
    parent = names.parent_key(sagas.prefix, order.group_id)
    assert await sagas.redis.exists(f"{parent}:resolved") == 0
    await sagas.redis.rename(kept, events)
    await sagas.groups.resolve_undo(order.group_id, "charge", REASON)


async def test_an_end_that_cannot_be_published_is_counted_once(
    sagas: Sagas, client: StockClient
) -> None:
    order = await failed(sagas, client, refund=fails(2))
    await sagas.stop()
    undo_id = names.undo_id(order.jobs[0].job_id)
    await client.manage(UNDO_QUEUE, "retry", job=undo_id)
    await client.heard("completed", id=undo_id)
    await client.end()
    events, kept = (f"{sagas.prefix}:payments:{key}" for key in ("events", "kept"))
    await sagas.redis.rename(events, kept)
    await sagas.redis.set(events, "spoilt")
    for _ in range(3):
        (settled,) = await sagas.groups.store.settle([order.group_id])
        assert isinstance(settled, Exception)
    await sagas.redis.rename(kept, events)
    await sagas.groups.store.settle([order.group_id])
    ended = await sagas.read(order.group_id)
    assert (ended.state, ended.attempt) == ("FAILED", 2)


async def test_a_resync_ends_a_group_whose_last_undo_completed_without_a_wake_up(
    sagas: Sagas, stock: ClientStarter
) -> None:
    client = await stock()
    order = await failed(sagas, client, refund=fails_for_good())
    await client.end()
    await sagas.stop()
    mended = await stock()
    undo_id = names.undo_id(order.jobs[0].job_id)
    await mended.manage(UNDO_QUEUE, "retry", job=undo_id)
    await sagas.groups.store.settle([order.group_id])
    open_again = await sagas.read(order.group_id)
    assert (open_again.state, open_again.undo_failed_count) == ("FAILED_COMPENSATION", 0)
    parked_key = names.parked_key(sagas.prefix)
    found: list[Any] = await sagas.redis.zrange(parked_key, 0, -1, withscores=True)
    parked = {str(entry): float(score) for entry, score in found}
    await mended.work(UNDO_QUEUE)
    await mended.heard("completed", id=undo_id)
    await mended.end()
    for entry in parked:
        await sagas.redis.lrem(names.wakeups_key(sagas.prefix), 0, entry)
    await sagas.redis.zadd(parked_key, parked)
    await sagas.driver.resync()
    assert (await sagas.read(order.group_id)).state == "FAILED"


async def test_a_resync_continues_a_retry_that_was_cut_off(
    sagas: Sagas, client: StockClient
) -> None:
    order = await failed(sagas, client, refund=fails_for_good())
    await client.end()
    await sagas.stop()
    parent = names.parent_key(sagas.prefix, order.group_id)
    undo_key = names.job_key(sagas.prefix, UNDO_QUEUE, names.undo_id(order.jobs[0].job_id))
    # What a retry writes before it settles the group.
    await sagas.redis.hset(names.undo_id(parent), f"retry:{undo_key}", "1")
    group_key = names.group_key(sagas.prefix, "payments", order.group_id)
    await sagas.redis.hset(group_key, mapping={"retrying": "1", "retries": "1"})
    await sagas.driver.resync()
    assert (await sagas.read(order.group_id)).state == "COMPENSATING"
    assert await sagas.redis.llen(f"{sagas.prefix}:{UNDO_QUEUE}:wait") == 1
    await sagas.groups.resolve_undo(order.group_id, "charge", REASON)


@pytest.mark.parametrize("key", ["prioritized", "events"])
async def test_a_key_of_another_type_is_found_before_an_undo_is_dropped(
    sagas: Sagas, client: StockClient, key: str
) -> None:
    backoff = {"type": "fixed", "delay": 3_600_000}
    undos = {"charge": undo("refund", attempts=2, backoff=backoff)}
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=undos)
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=1)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work(UNDO_QUEUE, {"refund": fails(1)})
    undo_id = names.undo_id(order.jobs[0].job_id)
    await client.heard("started", name="refund")
    base = f"{sagas.prefix}:{UNDO_QUEUE}"

    async def is_delayed() -> bool:
        return await sagas.redis.zscore(f"{base}:delayed", undo_id) is not None

    await eventually(is_delayed)
    await client.end()
    await sagas.stop()
    await sagas.redis.delete(f"{base}:{key}")
    await sagas.redis.set(f"{base}:{key}", "spoilt")
    with pytest.raises(Exception, match="WRONGTYPE"):
        await sagas.groups.resolve_undo(order.group_id, "charge", REASON)
    assert await is_delayed()
    assert await sagas.redis.exists(f"{base}:{undo_id}")
    await sagas.redis.delete(f"{base}:{key}")
    group = await sagas.groups.resolve_undo(order.group_id, "charge", REASON)
    assert (group.state, group.resolved_count) == ("FAILED", 1)
    assert not await is_delayed()


async def test_an_undo_without_a_parent_that_is_resolved_leaves_its_queue(
    sagas: Sagas, start_client: ClientStarter
) -> None:
    client = await start_client("bullmq6")
    order = await sagas.add(*JOBS, undos=UNDOS)
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=2)
    await client.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING", undo_count=2)
    undo_id = names.undo_id(order.jobs[0].job_id)
    await client.manage(UNDO_QUEUE, "removeChildDependency", job=undo_id)
    await sagas.groups.resolve_undo(order.group_id, "charge", REASON)
    waiting: list[Any] = await sagas.redis.lrange(f"{sagas.prefix}:{UNDO_QUEUE}:wait", 0, -1)
    assert undo_id not in waiting
    await client.work(UNDO_QUEUE)
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count, ended.resolved_count) == ("FAILED", 1, 1)
    assert await sagas.redis.exists(f"{sagas.prefix}:{UNDO_QUEUE}:{undo_id}") == 0
    assert client.count("started", name="refund") == 0


async def test_a_failed_undo_without_a_parent_that_is_resolved_is_not_run_by_a_stock_retry(
    sagas: Sagas, start_client: ClientStarter
) -> None:
    client = await start_client("bullmq6")
    order = await failed(sagas, client, refund=fails_for_good())
    undo_id = names.undo_id(order.jobs[0].job_id)
    undo_key = names.job_key(sagas.prefix, UNDO_QUEUE, undo_id)
    await sagas.redis.hdel(undo_key, "parentKey", "parent")
    await sagas.groups.resolve_undo(order.group_id, "charge", REASON)
    await client.manage(UNDO_QUEUE, "retry", "failed", job=undo_id)
    await client.heard("failed", id=undo_id, reason="the undo was resolved")
    assert client.count("started", name="refund") == 1


async def test_an_undo_that_waits_without_its_hash_is_queued_once_by_a_retry(
    sagas: Sagas, stock: ClientStarter
) -> None:
    client = await stock()
    order = await failed(sagas, client, refund=fails_for_good())
    await client.end()
    await sagas.stop()
    base, undo_id = f"{sagas.prefix}:{UNDO_QUEUE}", names.undo_id(order.jobs[0].job_id)
    mended = await stock()
    await mended.manage(UNDO_QUEUE, "retry", job=undo_id)
    await sagas.redis.delete(f"{base}:{undo_id}")
    await sagas.groups.retry_undos(order.group_id)
    assert await sagas.redis.lrange(f"{base}:wait", 0, -1) == [undo_id]
    sagas.drive()
    await mended.work(UNDO_QUEUE)
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 2)
    assert mended.count("started", name="refund") == 1


async def test_an_undo_that_runs_without_its_hash_is_not_retried(
    sagas: Sagas, stock: ClientStarter
) -> None:
    client = await stock()
    order = await failed(sagas, client, refund=fails_for_good())
    await client.end()
    await sagas.stop()
    base, undo_id = f"{sagas.prefix}:{UNDO_QUEUE}", names.undo_id(order.jobs[0].job_id)
    await sagas.redis.zrem(f"{base}:failed", undo_id)
    await sagas.redis.delete(f"{base}:{undo_id}")
    await sagas.redis.lpush(f"{base}:active", undo_id)
    with pytest.raises(InvalidJobStateError, match="is active in its queue"):
        await sagas.groups.retry_undos(order.group_id, ["charge"])
    assert (await sagas.read(order.group_id)).retries == 0
    await sagas.redis.delete(f"{base}:active")


async def test_undos_stay_in_their_queues_if_another_queue_cannot_be_written(
    sagas: Sagas, client: StockClient, queue: QueueNamer
) -> None:
    undos = {
        name: {**undo(f"undo-{name}", attempts=1), "queueName": queue(f"{name}-undos")}
        for name in ("charge", "tip")
    }
    order = await sagas.add(*JOBS, undos=undos)
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=2)
    await client.work("inventory", {"reserve": fails_for_good()})
    for name in undos:
        await client.work(f"{name}-undos", {f"undo-{name}": fails_for_good()})
    assert (await sagas.ends(order.group_id)).state == "FAILED_COMPENSATION"
    await client.end()
    await sagas.stop()
    # What a first call leaves to a second one.
    parent = names.parent_key(sagas.prefix, order.group_id)
    bases = [f"{sagas.prefix}:{name}-undos" for name in undos]
    ids = [names.undo_id(each.job_id) for each in order.jobs[:2]]
    for base, undo_id in zip(bases, ids, strict=True):
        await sagas.redis.hset(names.undo_id(parent), f"retry:{base}:{undo_id}", "1")
    group_key = names.group_key(sagas.prefix, "payments", order.group_id)
    await sagas.redis.hset(group_key, mapping={"retrying": "2", "retries": "1"})
    await sagas.redis.set(f"{bases[1]}:marker", "spoilt")
    (settled,) = await sagas.groups.store.settle([order.group_id])
    assert isinstance(settled, Exception)
    assert await sagas.redis.zrange(f"{bases[0]}:failed", 0, -1) == ids[:1]
    await sagas.redis.delete(f"{bases[1]}:marker")
    await sagas.groups.store.settle([order.group_id])
    assert (await sagas.read(order.group_id)).state == "COMPENSATING"
    for base, undo_id in zip(bases, ids, strict=True):
        assert await sagas.redis.lrange(f"{base}:wait", 0, -1) == [undo_id]
    for each in order.jobs[:2]:
        await sagas.groups.resolve_undo(order.group_id, each.job_id, REASON)


async def test_a_group_that_lost_its_hash_keeps_its_ends_and_retries(
    sagas: Sagas, stock: ClientStarter, queue: QueueNamer
) -> None:
    queue("payments")
    announced = {"queueName": queue("alerts"), "name": "ended"}
    order = await sagas.groups.add_group("order", JOBS, UNDOS, on_end=[announced])
    client = await stock()
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=2)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work(UNDO_QUEUE, {"refund": fails_for_good()})
    for _ in range(2):
        await sagas.ends(order.group_id)
        await sagas.groups.retry_undos(order.group_id)
    ended = await sagas.ends(order.group_id)
    assert (ended.attempt, ended.retries) == (3, 2)
    await client.end()
    await sagas.stop()
    await sagas.groups.retry_undos(order.group_id)
    await sagas.redis.delete(names.group_key(sagas.prefix, "payments", order.group_id))
    sagas.drive()
    await sagas.driver.resync()
    mended = await stock()
    await mended.work(UNDO_QUEUE)
    again = await sagas.ends(order.group_id)
    assert (again.attempt, again.retries, again.on_end_error) == (4, 3, "")
    waiting: list[Any] = await sagas.redis.lrange(f"{sagas.prefix}:alerts:wait", 0, -1)
    assert sorted(waiting) == [names.end_job_id(order.group_id, 0, n) for n in (1, 2, 3, 4)]
