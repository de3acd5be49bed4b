"""A group that somebody wrote to by hand is its own trouble, and holds up no other."""

import pytest
from redis.asyncio import Redis

from jobgroup import Driver, SpoiltKeyError
from testbed.sagas import Sagas

JOBS = [{"name": "pay", "queueName": "payments"}]


@pytest.mark.parametrize(
    "field", ["createdAt", "updatedAt", "revision", "failedAt", "finishedAt", "failedAttempts"]
)
async def test_a_spoilt_group_holds_up_no_other(
    sagas: Sagas, redis: Redis, prefix: str, field: str
) -> None:
    groups, store = sagas.groups, sagas.groups.store
    spoilt, sound = [(await groups.add_group("order", JOBS)).group_id for _ in range(2)]
    key = f"{prefix}:payments:groups:{spoilt}"
    before = await redis.hget(key, field)
    await redis.hset(key, field, "x")
    try:
        with pytest.raises(SpoiltKeyError, match=f"Group {spoilt} cannot be read"):
            await store.read(spoilt)
        assert [each.id for each in await store.read_many([spoilt, sound])] == [sound]
        answers = await store.settle([(spoilt, ""), (sound, "")])
        assert [isinstance(each, Exception) for each in answers] == [True, False]
        errors: list[str] = []
        driver = Driver(store, on_error=lambda group_id, _: errors.append(group_id))
        await driver.resync()
        assert errors == [spoilt]
    finally:
        await (redis.hset(key, field, before) if before else redis.hdel(key, field))
