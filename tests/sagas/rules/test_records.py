"""A group keeps a record of the latest requests, until it is removed."""

import pytest
from redis.asyncio import Redis

from jobgroup import InvalidGroupStateError, InvalidSpecError, Record
from jobgroup.model import names
from testbed.support.sagas import Sagas, job


async def test_a_cancellation_is_recorded_with_who_asked_for_it(sagas: Sagas, redis: Redis) -> None:
    order = await sagas.add(job("charge"))
    assert (await sagas.read(order.group_id)).records == ()
    cancelled = await sagas.groups.cancel_group(order.group_id, by="ann")
    (record,) = cancelled.records
    assert record == Record("cancel", record.at, "ann")
    assert record.at == cancelled.failed_at
    with pytest.raises(InvalidGroupStateError):
        await sagas.groups.cancel_group(order.group_id, by="ben")
    assert (await sagas.read(order.group_id)).records == (record,)

    key = f"{names.parent_key(sagas.prefix, order.group_id)}:records"
    assert await redis.llen(key) == 1
    await sagas.groups.remove_group(order.group_id)
    assert not await redis.exists(key)


async def test_a_requester_that_cannot_be_recorded_changes_nothing(sagas: Sagas) -> None:
    order = await sagas.add(job("charge"))
    with pytest.raises(InvalidSpecError, match=r"^by: Input should be one line"):
        await sagas.groups.cancel_group(order.group_id, by="ann\n")
    state = await sagas.read(order.group_id)
    assert (state.state, state.records) == ("ACTIVE", ())


async def test_a_foreign_key_in_the_place_of_the_records_prevents_the_call(
    sagas: Sagas, redis: Redis
) -> None:
    order = await sagas.add(job("charge"))
    key = f"{names.parent_key(sagas.prefix, order.group_id)}:records"
    await redis.set(key, "x")
    with pytest.raises(Exception, match="WRONGTYPE"):
        await sagas.groups.cancel_group(order.group_id)
    await redis.delete(key)
    assert (await sagas.read(order.group_id)).state == "ACTIVE"


async def test_the_records_remain_after_the_hash_of_the_group_was_restored(
    sagas: Sagas, redis: Redis
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    queue = f"{sagas.prefix}:inventory"
    await redis.lmove(f"{queue}:wait", f"{queue}:active")
    await redis.set(f"{order.jobs[1].job_key}:lock", "token")
    cancelled = await sagas.groups.cancel_group(order.group_id, by="ann")
    assert cancelled.state == "COMPENSATING"
    await redis.delete(names.group_key(sagas.prefix, "payments", order.group_id))
    await sagas.driver.resync()
    assert (await sagas.read(order.group_id)).records == cancelled.records

    await redis.delete(f"{order.jobs[1].job_key}:lock")
    for _ in range(2):  # the first call notes that the worker is gone
        await sagas.groups.store.settle([order.group_id], grace=0)
    assert (await sagas.read(order.group_id)).ended
