"""Undos are retried and resolved while other clients change keys of the group and of its queues."""

import pytest

from jobgroup.model import names
from testbed.servers.stock import StockClient, fails, fails_for_good
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import Sagas
from tests.sagas.rules.test_retried_undos import UNDO_QUEUE, failed

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
    found = await sagas.redis.zrange(parked_key, 0, -1, withscores=True)
    parked = {str(entry): score for entry, score in found}
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
