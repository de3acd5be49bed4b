"""list_groups.lua on a real Redis: order, pages, filters, and groups on the wake-up list."""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup import GroupState, InvalidSpecError, JobGroups, Store
from jobgroup.model import names
from testbed.support.sagas import delete_residue

JOBS = [{"name": "charge", "queueName": "a"}]
# More than list_groups.lua looks up on each page.
LONG = 500


@pytest.fixture
async def groups(redis: Redis, operator_redis: Redis, prefix: str) -> AsyncIterator[JobGroups]:
    yield JobGroups(Store(operator_redis, prefix))
    await redis.delete(prefix, *[key async for key in redis.scan_iter(f"{prefix}:*")])
    await delete_residue(redis, prefix)


async def add(groups: JobGroups, *ids: str, **more: Any) -> None:
    made = [{"name": "order", "jobs": JOBS, **more, "group_id": each} for each in ids]
    await groups.add_groups(made)


async def wake(groups: JobGroups, ids: Sequence[str]) -> None:
    """Move groups to the wake-up list, as a worker does."""
    store = groups.store
    pipeline = store.redis.pipeline(transaction=False)
    for group_id in ids:
        pipeline.zrem(names.parked_key(store.prefix), group_id)
        pipeline.rpush(names.wakeups_key(store.prefix), group_id)
    await pipeline.execute()


async def created(groups: JobGroups, times: Mapping[str, int]) -> None:
    """Create groups at these times, which are the scores of running groups."""
    store = groups.store
    await store.redis.zadd(names.parked_key(store.prefix), dict(times))
    for group_id, at in times.items():
        await store.redis.hset(names.group_key(store.prefix, "a", group_id), "createdAt", at)


async def pages(groups: JobGroups, **filters: Any) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page = await groups.list_groups(**filters, cursor=cursor)
        found.append([group.id for group in page.groups])
        cursor = page.cursor
        if cursor is None:
            return found


async def listed(groups: JobGroups, **filters: Any) -> list[str]:
    return [group_id for page in await pages(groups, **filters) for group_id in page]


@pytest.mark.parametrize("seed", range(12))
async def test_each_group_is_on_one_page_and_in_its_place(groups: JobGroups, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    ids = [f"{chance.choice('aB_-.9')}{n}" for n in range(30)]
    await add(groups, *ids)
    # Many groups share a millisecond.
    times = {group_id: 1_000_000 + chance.randrange(6) for group_id in ids}
    await created(groups, times)
    await wake(groups, chance.sample(ids, chance.choice([0, 3, 15, 30])))
    in_order = sorted(ids, key=lambda each: (times[each], each.encode()))
    for limit in (1, 2, 7, 30, 100):
        assert await listed(groups, state="ACTIVE", limit=limit) == in_order
    assert [len(page) for page in await pages(groups, limit=100)] == [30, 0, 0, 0, 0]


async def test_a_group_that_is_woken_between_two_pages_is_listed(groups: JobGroups) -> None:
    await add(groups, "a", "b", "c", "d")
    await created(groups, dict.fromkeys("abcd", 1_000_000))
    page = await groups.list_groups("ACTIVE", limit=2)
    await wake(groups, ["a", "b", "c"])
    rest = await groups.list_groups("ACTIVE", limit=2, cursor=page.cursor)
    assert {group.id for group in (*page.groups, *rest.groups)} == {"a", "b", "c", "d"}


async def test_a_long_wake_up_list_is_listed_while_drivers_shorten_it(groups: JobGroups) -> None:
    ids = [f"g{n}" for n in range(LONG + 30)]
    await add(groups, *ids)
    await wake(groups, ids[10:])
    assert sorted(await listed(groups, state="ACTIVE", limit=100)) == sorted(ids)
    assert sorted(await listed(groups, queue="a", limit=1000)) == sorted(ids)
    assert await listed(groups, state="FAILED", limit=100) == []

    page = await groups.list_groups("ACTIVE", limit=100)
    found = {group.id for group in page.groups}
    await groups.store.wakeups.settle(0, 50)
    while page.cursor:
        page = await groups.list_groups("ACTIVE", limit=100, cursor=page.cursor)
        found |= {group.id for group in page.groups}
    assert found == set(ids)


async def test_filters(groups: JobGroups, redis: Redis, prefix: str) -> None:
    await add(groups, "mine", "other-owner")
    await add(groups, "named", name="invoice")
    await add(groups, "elsewhere", jobs=[{"name": "ship", "queueName": "b"}])
    await redis.hset(names.parent_key(prefix, "other-owner"), "owner", "uid-1")
    await wake(groups, ["named", "mine"])
    assert await listed(groups, name="invoice") == ["named"]
    assert await listed(groups, queue="b") == ["elsewhere"]
    assert await listed(groups, owner="uid-1") == ["other-owner"]
    headless = await listed(groups, owner="headless", state="ACTIVE")
    assert set(headless) == {"mine", "named", "elsewhere"}
    assert await listed(groups, name="order", owner="headless", queue="a") == ["mine"]
    await redis.set(names.parent_key(prefix, "other-owner"), "of another type")
    assert set(await listed(groups, name="order")) == {"mine", "elsewhere"}


async def test_groups_of_an_age(groups: JobGroups, redis: Redis) -> None:
    await add(groups, "old", "new", "woken")
    now = (await redis.time())[0] * 1000
    await created(groups, {"old": now - 60_000, "woken": now - 60_000, "new": now - 1_000})
    await wake(groups, ["woken"])
    assert await listed(groups, older_than=30) == ["old", "woken"]
    assert await listed(groups, older_than=0.5) == ["old", "woken", "new"]
    assert await listed(groups, older_than=0.5, state="COMPENSATING") == []
    await groups.cancel_group("old")
    assert await listed(groups, older_than=30, state="FAILED") == []
    assert await listed(groups, older_than=0, state="FAILED") == ["old"]


async def test_filters_examine_a_thousand_groups_at_a_time(groups: JobGroups) -> None:
    await add(groups, *(f"g{n}" for n in range(1001)))
    await add(groups, "last", name="invoice")
    found = await pages(groups, state="ACTIVE", name="invoice")
    assert found == [[], ["last"]]


async def test_a_group_is_listed_in_the_state_that_follows_from_its_ledger(
    groups: JobGroups, redis: Redis, prefix: str
) -> None:
    await add(groups, "done", "runs")
    parent, key = names.parent_key(prefix, "done"), names.job_key(prefix, "a", "done-0")
    await redis.srem(f"{parent}:dependencies", key)
    await redis.hset(f"{parent}:processed", key, "1")
    await wake(groups, ["done"])
    assert await listed(groups, state="ACTIVE") == ["runs"]
    page = await groups.list_groups()
    found: dict[str, GroupState] = {group.id: group for group in page.groups}
    assert (found["done"].state, found["done"].completed_count) == ("COMPLETED", 1)
    assert found["runs"].state == "ACTIVE"


@pytest.mark.parametrize(
    "filters",
    [
        {"state": "LOST"},
        {"limit": 0},
        {"limit": 1001},
        {"limit": True},
        {"older_than": -1},
        {"older_than": float("nan")},
        {"older_than": "7d"},
        {"cursor": "FAILED::0"},
        {"cursor": "FAILED::0:a:b"},
        {"cursor": "LOST::0:"},
        {"cursor": "ACTIVE:sorted:0:"},
        {"cursor": "ACTIVE:merged:x:a"},
        {"cursor": "ACTIVE:merged:0:a*"},
        {"state": "FAILED", "cursor": "ACTIVE::0:"},
    ],
    ids=str,
)
async def test_filters_that_mean_nothing_are_refused(
    groups: JobGroups, filters: dict[str, Any]
) -> None:
    with pytest.raises(InvalidSpecError, match=r"^(state|limit|older_than|cursor): "):
        await groups.list_groups(**filters)
