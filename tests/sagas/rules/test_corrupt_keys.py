"""A group whose keys were changed by hand does not affect other groups."""

import pytest
from redis.asyncio import Redis

from jobgroup import CorruptKeyError, Driver
from jobgroup.model import names
from jobgroup.model.snapshot import Settled
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import Sagas, job
from testbed.support.waiting import eventually

JOBS = [{"name": "pay", "queueName": "payments"}]


@pytest.mark.parametrize(
    "field", ["createdAt", "updatedAt", "revision", "failedAt", "failedAttempts"]
)
async def test_a_corrupt_group_does_not_affect_others(
    sagas: Sagas, redis: Redis, prefix: str, field: str
) -> None:
    groups, store = sagas.groups, sagas.groups.store
    await sagas.stop()  # its first review may find the corrupt group
    corrupt, sound = [(await groups.add_group("order", JOBS)).group_id for _ in range(2)]
    key = f"{prefix}:payments:groups:{corrupt}"
    before = await redis.hget(key, field)
    await redis.hset(key, field, "x")
    try:
        with pytest.raises(CorruptKeyError, match=f"Group {corrupt} cannot be read"):
            await store.read(corrupt)
        assert [each.id for each in await store.read_many([corrupt, sound])] == [sound]
        answers = await store.settle([corrupt, sound], snapshots=True)
        assert [isinstance(each, CorruptKeyError) for each in answers] == [True, False]
        # Only a reader meets the error: a driver without a callback settles both groups.
        settled = await store.settle([corrupt, sound])
        assert [isinstance(each, Settled) for each in settled] == [True, True]
        errors: list[tuple[str, bool]] = []
        driver = Driver(
            store,
            on_settled=lambda _: None,  # so that it reads snapshots
            on_error=lambda group_id, error: errors.append(
                (group_id, isinstance(error, CorruptKeyError))
            ),
        )
        await redis.rpush(names.wakeups_key(prefix), corrupt, sound)
        await driver.drain()
        assert errors == [(corrupt, True)]
    finally:
        await (redis.hset(key, field, before) if before else redis.hdel(key, field))


async def test_a_group_that_met_an_error_when_it_ended_is_parked_after_the_repair(
    sagas: Sagas, redis: Redis, prefix: str, start_client: ClientStarter
) -> None:
    client = await start_client("bullmq6")
    node = await sagas.add(job("pay", removeOnComplete={"count": 1}))
    parent = names.parent_key(prefix, node.group_id)
    rules = await redis.hget(parent, "retention")
    await redis.hset(parent, "retention", "{")
    await client.work("payments")

    async def is_reported() -> bool:
        return bool(sagas.errors)

    await eventually(is_reported)
    await redis.hset(parent, "retention", rules)
    await sagas.driver.resync()
    assert (await sagas.groups.store.totals()).groups["COMPLETED"] == 1
    assert await redis.hget(parent, "retention") is None
    sagas.errors.clear()
