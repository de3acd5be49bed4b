"""A group whose keys were changed by hand does not affect other groups."""

import pytest
from redis.asyncio import Redis

from jobgroup import CorruptKeyError, Driver
from jobgroup.model import names
from testbed.support.sagas import Sagas

JOBS = [{"name": "pay", "queueName": "payments"}]


@pytest.mark.parametrize(
    "field", ["createdAt", "updatedAt", "revision", "failedAt", "finishedAt", "failedAttempts"]
)
async def test_a_corrupt_group_does_not_affect_others(
    sagas: Sagas, redis: Redis, prefix: str, field: str
) -> None:
    groups, store = sagas.groups, sagas.groups.store
    corrupt, sound = [(await groups.add_group("order", JOBS)).group_id for _ in range(2)]
    key = f"{prefix}:payments:groups:{corrupt}"
    before = await redis.hget(key, field)
    await redis.hset(key, field, "x")
    try:
        with pytest.raises(CorruptKeyError, match=f"Group {corrupt} cannot be read"):
            await store.read(corrupt)
        assert [each.id for each in await store.read_many([corrupt, sound])] == [sound]
        answers = await store.settle([corrupt, sound])
        assert [isinstance(each, Exception) for each in answers] == [True, False]
        errors: list[str] = []
        driver = Driver(store, on_error=lambda group_id, _: errors.append(group_id))
        await redis.rpush(names.wakeups_key(prefix), corrupt, sound)
        await driver.drain()
        assert errors == [corrupt]
    finally:
        await (redis.hset(key, field, before) if before else redis.hdel(key, field))
