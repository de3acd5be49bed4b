"""Reads that survive keys that are missing or invalid. No driver runs, so nothing restores them."""

from redis.asyncio import Redis

from jobgroup import Store
from jobgroup.definition.plan import plan_group
from jobgroup.definition.spec import parse_group
from jobgroup.model import names
from jobgroup.model.snapshot import OwnedGroup


async def test_an_owned_group_whose_size_cannot_be_read_is_found(
    redis: Redis, operator_redis: Redis, prefix: str
) -> None:
    store = Store(operator_redis, prefix)
    definition = parse_group("order", [{"name": "charge", "queueName": "payments"}])
    ids = ["lost", "text", "list"]
    await store.create([plan_group(definition, each, "cluster-1", f"shop/{each}") for each in ids])
    lost, text, other = (names.group_key(prefix, "payments", each) for each in ids)
    await redis.delete(lost, other)
    await redis.rpush(other, "not a hash")
    await redis.hset(text, "totalJobs", "many")
    found = await store.owned("cluster-1", ids)
    await redis.delete(*[key async for key in redis.scan_iter(f"{prefix}:*")])
    assert found == {each: OwnedGroup(f"shop/{each}", 0) for each in ids}
