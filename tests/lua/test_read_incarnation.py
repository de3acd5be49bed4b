"""read_epoch.lua on a real Redis."""

from redis.asyncio import Redis

from jobgroup.scripts import load

read_epoch = load("read_epoch")


async def test_the_first_caller_names_the_epoch(redis: Redis, prefix: str) -> None:
    key = f"{prefix}:epoch"
    assert await read_epoch(redis, epoch=key, candidate="a") == "a"
    assert await read_epoch(redis, epoch=key, candidate="b") == "a"
    assert await redis.ttl(key) == -1
    await redis.delete(key)


async def test_an_emptied_redis_is_another_epoch(redis: Redis, prefix: str) -> None:
    key = f"{prefix}:epoch"
    await read_epoch(redis, epoch=key, candidate="a")
    await redis.delete(key)
    assert await read_epoch(redis, epoch=key, candidate="b") == "b"
    await redis.delete(key)
