"""read_totals.lua on a real Redis, with groups that the other scripts parked."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup import JobGroups, Store
from jobgroup.model import names
from jobgroup.model.snapshot import STATES, Totals
from testbed.support.fixtures import QueueNamer
from tests.sagas.histories.stock_queue import StockConnection, StockQueue

NONE = dict.fromkeys(STATES, 0)
UNDO = {"name": "refund"}
MINUTE = 60_000


@pytest.fixture
async def groups(redis: Redis, operator_redis: Redis, prefix: str) -> AsyncIterator[JobGroups]:
    """Return the groups of a test; all keys are deleted afterwards."""
    yield JobGroups(Store(operator_redis, prefix))
    await redis.delete(prefix, *[key async for key in redis.scan_iter(f"{prefix}:*")])


@pytest.fixture
def stock(redis: Redis, prefix: str, queue: QueueNamer) -> StockQueue:
    return StockQueue(StockConnection(redis), prefix, queue("a"))


async def add(groups: JobGroups, name: str, jobs: int = 1) -> int:
    """Make a group whose jobs can be undone, and return when it was made."""
    members = [{"name": f"job-{n}", "queueName": "a"} for n in range(jobs)]
    undos = {member["name"]: UNDO for member in members}
    await groups.add_group("order", members, undos, group_id=name)
    return await created_at(groups, name)


async def created_at(groups: JobGroups, name: str) -> int:
    group = await groups.get_group_state(name)
    assert group
    return group.created_at


async def end(stock: StockQueue, well: bool = True) -> None:
    """Take the next job and finish it."""
    holder = await stock.take("token")
    assert holder
    if well:
        await holder.complete()
    else:
        await holder.fail("out of stock", finally_=True)


async def settle(groups: JobGroups, name: str) -> None:
    store = groups.store
    await store.settle([name])
    for entry in (name, names.undo_id(name)):
        await store.redis.lrem(names.wakeups_key(store.prefix), 0, entry)


async def test_totals_without_groups_are_zero(groups: JobGroups) -> None:
    assert await groups.store.totals() == Totals(NONE, {}, 0, 0)


async def test_groups_are_counted_by_state(
    redis: Redis, prefix: str, groups: JobGroups, stock: StockQueue, queue: QueueNamer
) -> None:
    undos = StockQueue(StockConnection(redis), prefix, queue("a:compensation"))
    await add(groups, "went-well")
    await end(stock)
    for name in ("refused", "refused-too"):
        await add(groups, name)
        await end(stock, well=False)
    for name, undone in (("undone", True), ("not-undone", False)):
        await add(groups, name, jobs=2)
        await end(stock)
        await end(stock, well=False)
        await settle(groups, name)
        await end(undos, undone)
    await add(groups, "undoing", jobs=2)
    await end(stock)
    await end(stock, well=False)
    for name in ("went-well", "refused", "refused-too", "undone", "not-undone", "undoing"):
        await settle(groups, name)
    made_at = await add(groups, "runs")
    await add(groups, "runs-too")

    totals = await groups.store.totals()
    assert totals.groups == {
        "ACTIVE": 2,
        "COMPENSATING": 1,
        "COMPLETED": 1,
        "FAILED": 3,
        "FAILED_COMPENSATION": 1,
    }
    assert totals.wakeups == 0
    assert totals.oldest["ACTIVE"] == made_at
    undoing = await groups.get_group_state("undoing")
    assert undoing
    assert totals.oldest["COMPENSATING"] == undoing.failed_at

    # list_groups.lua reads the same scores.
    assert {state: await groups.store.listing.ids(state) for state in STATES} == {
        "ACTIVE": ["runs", "runs-too"],
        "COMPENSATING": ["undoing"],
        "COMPLETED": ["went-well"],
        "FAILED": ["refused", "refused-too", "undone"],
        "FAILED_COMPENSATION": ["not-undone"],
    }

    await groups.remove_group("not-undone")
    totals = await groups.store.totals()
    assert (totals.groups["FAILED_COMPENSATION"], totals.groups["FAILED"]) == (0, 3)
    assert "FAILED_COMPENSATION" not in totals.oldest


async def test_ended_groups_are_listed_in_the_order_in_which_they_ended(
    redis: Redis, prefix: str, groups: JobGroups, stock: StockQueue
) -> None:
    for name in ("older", "newer"):
        created = await add(groups, name)
        while int(time.time() * 1000) <= created:
            pass
    await redis.lpush(f"{prefix}:a:wait", await redis.rpop(f"{prefix}:a:wait"))  # type: ignore[arg-type]
    for name in ("newer", "older"):
        await end(stock)
        await settle(groups, name)
        newest = await groups.get_group_state(name)
        assert newest
        while await now(redis) <= newest.updated_at:
            pass
    ended = (await groups.list_groups("COMPLETED")).groups
    assert [group.id for group in ended] == ["newer", "older"]
    assert (await groups.store.totals()).oldest == {"COMPLETED": ended[0].finished_at}


async def test_settling_does_not_change_the_age_of_a_group(groups: JobGroups) -> None:
    made_at = await add(groups, "old", jobs=2)
    while int(time.time() * 1000) <= made_at:
        pass
    await settle(groups, "old")
    assert (await groups.store.totals()).oldest == {"ACTIVE": made_at}


async def test_the_waiting_time_starts_with_the_event_of_bullmq(
    redis: Redis, prefix: str, groups: JobGroups, stock: StockQueue
) -> None:
    await add(groups, "order")
    await end(stock)
    newest: Any = await redis.xrevrange(names.events_key(prefix, names.LEDGER_QUEUE), count=1)
    ((note_id, note),) = newest
    assert note["jobId"] == "order"
    before = await now(redis)
    totals = await groups.store.totals()
    after = await now(redis)
    assert totals.wakeups == 1
    assert totals.groups == NONE
    assert before <= int(note_id.partition("-")[0]) + totals.waited <= after


async def now(redis: Redis) -> int:
    seconds, micros = await redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


async def wake(redis: Redis, prefix: str, name: str, ago: int) -> None:
    """Put a group on the wake-up list as BullMQ does, some time ago."""
    noted = {"event": "waiting", "jobId": name, "prev": "waiting-children"}
    at = await now(redis) - ago
    await redis.xadd(names.events_key(prefix, names.LEDGER_QUEUE), noted, id=f"{at}-1")  # type: ignore[arg-type]
    await redis.rpush(names.wakeups_key(prefix), name)


async def test_the_waiting_time_is_that_of_the_first_entry(
    redis: Redis, prefix: str, groups: JobGroups
) -> None:
    for name, ago in (("before", 9), ("first", 7), ("second", 5), ("third", 3)):
        await wake(redis, prefix, name, ago * MINUTE)
    await redis.lpop(names.wakeups_key(prefix))
    totals = await groups.store.totals()
    assert (totals.wakeups, totals.waited // MINUTE) == (3, 7)


async def test_a_trimmed_event_counts_as_the_oldest_that_is_left(
    redis: Redis, prefix: str, groups: JobGroups
) -> None:
    for name, ago in (("first", 9), ("second", 5), ("third", 3)):
        await wake(redis, prefix, name, ago * MINUTE)
    await redis.xtrim(names.events_key(prefix, names.LEDGER_QUEUE), maxlen=2, approximate=False)
    assert (await groups.store.totals()).waited // MINUTE == 5


async def test_a_group_with_work_left_has_an_event_too(
    redis: Redis, prefix: str, groups: JobGroups
) -> None:
    await add(groups, "large", jobs=300)
    await wake(redis, prefix, "somebody", ago=9 * MINUTE)
    await redis.lpop(names.wakeups_key(prefix))
    await groups.cancel_group("large")
    totals = await groups.store.totals()
    assert totals.wakeups == 1
    assert totals.waited < 9 * MINUTE
    await groups.store.wakeups.settle()
    assert (await groups.store.totals()).groups == {**NONE, "FAILED": 1}
