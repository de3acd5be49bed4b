"""remove_group.lua on a real Redis, with jobs that stock code runs."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from jobgroup import GroupNotFoundError, GroupRemovedError, InvalidGroupStateError, JobGroups, Store
from jobgroup.model.clock import TOMBSTONE_MS
from testbed.support.fixtures import QueueNamer
from testbed.support.sagas import delete_residue
from tests.sagas.histories.stock_queue import StockConnection, StockQueue

JOBS = [{"name": "charge", "queueName": "a"}]


@pytest.fixture
async def groups(redis: Redis, operator_redis: Redis, prefix: str) -> AsyncIterator[JobGroups]:
    """Return the groups of a test; tombstones are deleted afterwards."""
    yield JobGroups(Store(operator_redis, prefix))
    await delete_residue(redis, prefix)


@pytest.fixture
def stock(redis: Redis, prefix: str, queue: QueueNamer) -> StockQueue:
    return StockQueue(StockConnection(redis), prefix, queue("a"))


async def complete_one(groups: JobGroups, stock: StockQueue) -> None:
    """Create a group of one job and complete it."""
    await groups.add_group("order", JOBS, group_id="g")
    holder = await stock.take("token")
    assert holder
    await holder.complete()
    await groups.store.wakeups.settle()


async def test_a_removed_group_leaves_a_tombstone_and_nothing_else(
    redis: Redis, prefix: str, groups: JobGroups, stock: StockQueue
) -> None:
    await complete_one(groups, stock)
    await groups.remove_group("g")
    left = [key async for key in redis.scan_iter(f"{prefix}:*")]
    assert set(left) <= {f"{prefix}:_jobgroups:{key}" for key in ("events", "marker", "tomb:g")}
    assert 0 < await redis.pttl(f"{prefix}:_jobgroups:tomb:g") <= TOMBSTONE_MS
    with pytest.raises(GroupRemovedError):
        await groups.add_group("order", JOBS, group_id="g")
    with pytest.raises(GroupNotFoundError):
        await groups.remove_group("g")


async def test_a_running_group_is_not_removed(groups: JobGroups, stock: StockQueue) -> None:
    await groups.add_group("order", JOBS, group_id="g")
    with pytest.raises(InvalidGroupStateError, match=r"^Cannot remove group in state ACTIVE$"):
        await groups.remove_group("g")
    await groups.cancel_group("g")
    await groups.remove_group("g")


async def test_a_job_whose_worker_died_is_removed_from_the_active_list(
    redis: Redis, prefix: str, groups: JobGroups, stock: StockQueue
) -> None:
    await complete_one(groups, stock)
    await stock.retry("g-0", "completed")
    await stock.take("another token")
    await stock.lose_worker("g-0")
    await groups.remove_group("g")
    for _ in range(2):
        await stock.check_stalls()
    assert await redis.lrange(f"{prefix}:a:active", 0, -1) == []
    assert await redis.lrange(f"{prefix}:a:wait", 0, -1) == []


async def test_an_active_job_keeps_its_hash_until_it_finishes(
    redis: Redis, prefix: str, groups: JobGroups, stock: StockQueue
) -> None:
    await complete_one(groups, stock)
    await stock.retry("g-0", "completed")
    holder = await stock.take("another token")
    assert holder
    await groups.remove_group("g")
    await holder.complete()
    assert await redis.hget(f"{prefix}:a:g-0", "name") == "charge"
    assert await redis.exists(f"{prefix}:_jobgroups:g", f"{prefix}:_jobgroups:g:processed") == 0
