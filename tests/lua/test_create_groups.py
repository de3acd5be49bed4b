"""create_groups.lua on a real Redis: the memory of a group that waits."""

from redis.asyncio import Redis

from jobgroup import JobGroups, Store
from jobgroup.model import names
from testbed.support.sagas import job, undo

LONG = {"note": "x" * 100}


async def test_no_hash_of_a_waiting_group_keeps_a_smaller_table(
    redis: Redis, operator_redis: Redis, prefix: str
) -> None:
    """Redis moves a hash to a larger table in steps, one with each field that is read or set."""
    charge, refund = {**job("charge"), "data": LONG}, {**undo("refund"), "data": LONG}
    store = Store(operator_redis, prefix)
    order = await JobGroups(store).add_group("order", [charge], {"charge": refund})
    group = names.group_key(prefix, "payments", order.group_id)
    for key in (order.jobs[0].job_key, group):
        before = await redis.memory_usage(key, samples=0)
        await redis.hmget(key, ["name"] * 16)
        assert await redis.memory_usage(key, samples=0) == before
    await redis.delete(*[key async for key in redis.scan_iter(f"{prefix}:*")])
