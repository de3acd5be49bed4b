"""Deadlines and times to live on a real Redis, with jobs that stock code runs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup import JobGroups, Store
from jobgroup.model import names
from jobgroup.model.snapshot import State
from jobgroup.store import store as store_module
from jobgroup.store.reviews import Cursor
from testbed.support.fixtures import QueueNamer
from testbed.support.sagas import delete_residue
from tests.sagas.histories.stock_queue import StockConnection, StockQueue

DAY = 86_400
JOBS = [{"name": "pay", "queueName": "a"}, {"name": "ship", "queueName": "b"}]
UNDOS = {"pay": {"name": "refund", "opts": {"attempts": 1}}}
LATER = "alerts"


@pytest.fixture
async def groups(redis: Redis, operator_redis: Redis, prefix: str) -> AsyncIterator[JobGroups]:
    """Return the groups of a test; tombstones are deleted afterwards."""
    yield JobGroups(Store(operator_redis, prefix))
    await delete_residue(redis, prefix)


async def state_of(groups: JobGroups) -> State:
    group = await groups.get_group_state("g")
    assert group
    return group.state


async def due_times(redis: Redis, prefix: str) -> list[tuple[str, float]]:
    found: Any = await redis.zrange(names.due_key(prefix), 0, -1, withscores=True)
    return [(group_id, score) for group_id, score in found]


class Order:
    """A group whose second member fails, so that its first one is undone."""

    def __init__(self, redis: Redis, groups: JobGroups, queue: QueueNamer) -> None:
        self._groups = groups
        connection = StockConnection(redis)
        prefix = groups.store.prefix
        self._pay, self._ship, self.undos = (
            StockQueue(connection, prefix, queue(name)) for name in ("a", "b", "a:compensation")
        )
        queue(LATER)

    async def settle(self) -> None:
        while await self._groups.store.wakeups.settle():
            pass

    async def finish(self, stock: StockQueue, completes: bool = True) -> None:
        holder = await stock.take("token")
        assert holder
        await (holder.complete() if completes else holder.fail("no", True))

    async def end(self) -> None:
        """Undo the group."""
        await self.finish(self._pay)
        await self.finish(self._ship, completes=False)
        await self.settle()
        await self.finish(self.undos)
        await self.settle()
        assert await state_of(self._groups) == "FAILED"

    async def removed(self, spare: bool) -> list[str]:
        """Remove the group if its own time to live has passed, or that of all groups."""
        reviews = self._groups.store.reviews
        if not spare:
            return (await reviews.due(Cursor())).removed
        return (await reviews.prune("FAILED", 0, Cursor(), spare=True)).groups


@pytest.fixture
def order(redis: Redis, groups: JobGroups, queue: QueueNamer) -> Order:
    return Order(redis, groups, queue)


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("completes", [False, True])
async def test_a_group_whose_undo_runs_again_does_not_expire(
    groups: JobGroups, order: Order, spare: bool, completes: bool
) -> None:
    await groups.add_group("order", JOBS, UNDOS, "g", ttl=None if spare else 0)
    await order.end()
    await order.undos.retry(names.undo_id("g-0"), "completed")
    assert await order.removed(spare) == []
    await order.finish(order.undos, completes)
    if completes:
        assert await order.removed(spare) == ["g"]
        return
    # It has failed, and no driver has settled the group yet.
    assert await order.removed(spare) == []
    await order.settle()
    assert await state_of(groups) == "FAILED_COMPENSATION"
    assert await order.removed(spare) == []
    await groups.remove_group("g")


@pytest.mark.parametrize("spare", [False, True])
async def test_a_group_does_not_expire_before_the_jobs_of_its_end_are_added(
    redis: Redis, prefix: str, groups: JobGroups, order: Order, spare: bool
) -> None:
    entries = [{"when": "Failed", "queueName": LATER, "name": "tell"}]
    await groups.add_group("order", JOBS, UNDOS, "g", ttl=None if spare else 0, on_end=entries)
    await redis.set(f"{prefix}:{LATER}:wait", "of another type")
    await order.end()
    assert await order.removed(spare) == []
    await redis.delete(f"{prefix}:{LATER}:wait")
    await groups.store.settle(["g"])
    assert await order.removed(spare) == ["g"]
    told = names.end_job_id("g", 0, 1)
    assert await redis.lrange(f"{prefix}:{LATER}:wait", 0, -1) == [told]
    await redis.delete(f"{prefix}:{LATER}:wait", f"{prefix}:{LATER}:{told}")


async def test_a_released_group_stays_until_the_jobs_of_its_end_are_added(
    redis: Redis, prefix: str, groups: JobGroups, order: Order
) -> None:
    entries = [{"when": "Failed", "queueName": LATER, "name": "tell"}]
    await groups.add_group("order", JOBS, UNDOS, "g", on_end=entries)
    await groups.store.orphan("g", release=True)
    await redis.set(f"{prefix}:{LATER}:wait", "of another type")
    await order.end()
    assert (await groups.store.reviews.released(Cursor())).ended == {}
    await redis.delete(f"{prefix}:{LATER}:wait")
    await groups.store.settle(["g"])
    assert (await groups.store.reviews.released(Cursor())).ended == {"g": ""}
    await groups.remove_group("g")
    await redis.delete(f"{prefix}:{LATER}:wait", f"{prefix}:{LATER}:{names.end_job_id('g', 0, 1)}")


async def test_removal_goes_on_if_an_undo_runs_again_after_its_begin(
    redis: Redis, prefix: str, groups: JobGroups, order: Order
) -> None:
    await groups.add_group("order", JOBS, UNDOS, "g", ttl=0)
    await order.end()
    # As a call leaves it that removed as many jobs as it may.
    await redis.set(names.tombstone_key(prefix, "g"), 1)
    await order.undos.retry(names.undo_id("g-0"), "completed")
    assert await order.removed(spare=False) == ["g"]


async def test_a_deadline_counts_from_the_time_of_redis(
    redis: Redis, prefix: str, groups: JobGroups, queue: QueueNamer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in JOBS:
        queue(each["queueName"])
    # The clock of this client is wrong.
    monkeypatch.setattr(store_module, "now_ms", lambda: 1_000_000_000_000)
    before, _ = await redis.time()
    await groups.add_group("order", JOBS, group_id="g", deadline=DAY)
    after, _ = await redis.time()
    due = await redis.zscore(names.due_key(prefix), "g")
    assert due is not None
    assert before + DAY <= due / 1000 < after + DAY + 1
    assert (await groups.store.reviews.due(Cursor())).overdue == []
    await groups.cancel_group("g")
    await groups.remove_group("g")


@pytest.mark.parametrize("state", ["ACTIVE", "FAILED"])
async def test_a_review_restores_when_a_group_is_due(
    redis: Redis, prefix: str, groups: JobGroups, order: Order, state: State
) -> None:
    due = names.due_key(prefix)
    await groups.add_group("order", JOBS, UNDOS, "g", ttl=DAY, deadline=2 * DAY)
    if state == "FAILED":
        await order.end()
    ((_, was),) = await due_times(redis, prefix)
    await redis.delete(due)
    await groups.store.reviews.review(state, Cursor())
    ((_, restored),) = await due_times(redis, prefix)
    assert abs(restored - was) < DAY * 1000 / 2
    # An entry that is there is kept, and no key of another type stops a review.
    await redis.zadd(due, {"g": 1})
    await groups.store.reviews.review(state, Cursor())
    assert await redis.zscore(due, "g") == 1
    await redis.set(due, "of another type")
    assert (await groups.store.reviews.review(state, Cursor())).due == []
    await redis.delete(due)
    if state == "ACTIVE":
        await groups.cancel_group("g")
    await groups.remove_group("g")


async def test_a_review_adds_no_due_time_to_groups_that_have_none(
    redis: Redis, prefix: str, groups: JobGroups, order: Order
) -> None:
    await groups.add_group("order", JOBS, UNDOS, "g", deadline=DAY)
    await order.end()
    await redis.delete(names.due_key(prefix))
    await groups.store.reviews.review("FAILED", Cursor())
    assert await redis.exists(names.due_key(prefix)) == 0
    await groups.remove_group("g")
