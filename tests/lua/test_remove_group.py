"""remove_group.lua on a real Redis, with jobs that stock code runs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup import GroupNotFoundError, GroupRemovedError, InvalidGroupStateError, JobGroups, Store
from jobgroup.model import names
from jobgroup.model.clock import TOMBSTONE_MS
from jobgroup.store.reviews import Cursor
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


async def count_ended(groups: JobGroups) -> int:
    """Return how often groups of the queue have announced their end."""
    events: Any = await groups.store.redis.xrange(f"{groups.store.prefix}:a:events")
    return sum(fields["event"].startswith("group:") for _, fields in events)


async def undo_two(redis: Redis, prefix: str, groups: JobGroups, queue: QueueNamer) -> None:
    """Create a group whose members of two queues are undone."""
    connection = StockConnection(redis)
    jobs = [{"name": "pay", "queueName": "a"}, {"name": "book", "queueName": "b"}]
    undos = {each["name"]: {"name": f"un{each['name']}"} for each in jobs}
    await groups.add_group(
        "order", [*jobs, {"name": "ship", "queueName": "c"}], undos, group_id="g"
    )
    for name in ("a", "b", "c", "a:compensation", "b:compensation"):
        stock = StockQueue(connection, prefix, queue(name))
        holder = await stock.take("token")
        assert holder
        await (holder.fail("no stock", True) if name == "c" else holder.complete())
        while await groups.store.wakeups.settle():
            pass
    group = await groups.get_group_state("g")
    assert group
    assert group.state == "FAILED"


async def test_no_request_settles_a_group_of_which_a_part_was_removed(
    redis: Redis, prefix: str, groups: JobGroups, queue: QueueNamer
) -> None:
    await undo_two(redis, prefix, groups, queue)
    due = names.due_key(prefix)
    await redis.hset(f"{prefix}:a:groups:g", "ttlSeconds", 0)
    await redis.zadd(due, {"g": 1})
    ended = await count_ended(groups)
    # The second queue has a key of another type: the removal stops after the jobs of the first one.
    await redis.rename(f"{prefix}:b:completed", f"{prefix}:b:completed:kept")
    await redis.set(f"{prefix}:b:completed", "of another type")
    await groups.store.reviews.due(Cursor())
    assert await redis.exists(f"{prefix}:a:g-0") == 0
    assert await redis.exists(f"{prefix}:b:g-1") == 1
    with pytest.raises(GroupNotFoundError):
        await groups.cancel_group("g")
    with pytest.raises(GroupNotFoundError):
        await groups.retry_undos("g")
    with pytest.raises(GroupNotFoundError):
        await groups.resolve_undo("g", "g-1", "by hand")
    with pytest.raises(GroupNotFoundError):
        await groups.complete_job("g", "g-1")
    await groups.store.settle(["g"])
    assert await redis.hget(f"{prefix}:a:groups:g", "state") == "FAILED"
    assert await count_ended(groups) == ended
    assert await redis.zscore(due, "g") == 1
    await redis.rename(f"{prefix}:b:completed:kept", f"{prefix}:b:completed")
    await groups.store.reviews.due(Cursor())
    left = {key.removeprefix(f"{prefix}:") async for key in redis.scan_iter(f"{prefix}:*g*")}
    assert {key for key in left if "g-" in key or key.endswith(":g")} == {"_jobgroups:tomb:g"}


async def test_the_entry_of_a_removed_group_in_a_long_list_is_dropped_when_it_is_settled(
    redis: Redis, prefix: str, groups: JobGroups, stock: StockQueue
) -> None:
    await complete_one(groups, stock)
    wakeups = names.wakeups_key(prefix)
    await redis.rpush(wakeups, "g", *(f"other-{n}" for n in range(1000)), "g")
    await groups.remove_group("g")
    # A search of the list would take longer, the more groups wait.
    assert await redis.lpos(wakeups, "g", count=0) == [0, 1001]
    await redis.ltrim(wakeups, 1001, -1)
    assert await groups.store.wakeups.settle() == [("g", None)]
    assert await redis.exists(wakeups, names.parent_key(prefix, "g")) == 0
