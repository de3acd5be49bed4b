"""read_incarnation.lua on a real Redis."""

from redis.asyncio import Redis

from jobgroup.store.scripts import load

read_incarnation = load("read_incarnation")


async def test_the_first_caller_sets_the_incarnation(
    redis: Redis, operator_redis: Redis, prefix: str
) -> None:
    key = f"{prefix}:incarnation"
    assert await read_incarnation(operator_redis, incarnation=key, candidate="a") == "a"
    assert await read_incarnation(operator_redis, incarnation=key, candidate="b") == "a"
    assert await redis.ttl(key) == -1
    await redis.delete(key)


async def test_an_emptied_redis_has_a_new_incarnation(
    redis: Redis, operator_redis: Redis, prefix: str
) -> None:
    key = f"{prefix}:incarnation"
    await read_incarnation(operator_redis, incarnation=key, candidate="a")
    await redis.delete(key)
    assert await read_incarnation(operator_redis, incarnation=key, candidate="b") == "b"
    await redis.delete(key)
