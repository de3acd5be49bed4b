"""read_results.lua on a real Redis, with jobs that stock code completes."""

import json
from collections.abc import AsyncIterator, Mapping

import pytest
from redis.asyncio import Redis

from jobgroup import GroupNotFoundError, InvalidSpecError, JobGroups, JobResult, Store
from jobgroup.model import names
from testbed.support.fixtures import QueueNamer
from testbed.support.sagas import Sagas
from tests.sagas.histories.stock_queue import StockConnection, StockQueue


@pytest.fixture
async def groups(redis: Redis, operator_redis: Redis, prefix: str) -> AsyncIterator[JobGroups]:
    yield JobGroups(Store(operator_redis, prefix))
    await redis.delete(prefix, *[key async for key in redis.scan_iter(f"{prefix}:*")])


async def complete(groups: JobGroups, group_id: str, values: Mapping[int, object]) -> None:
    """Write what stock workers leave of members that completed with these values."""
    prefix, redis = groups.store.prefix, groups.store.redis
    parent = names.parent_key(prefix, group_id)
    for n, value in values.items():
        key = names.job_key(prefix, "a", names.job_id(group_id, n))
        await redis.srem(f"{parent}:dependencies", key)
        await redis.hset(f"{parent}:processed", key, json.dumps(value))


async def read(groups: JobGroups, group_id: str) -> list[list[JobResult]]:
    pages, cursor = [], None
    while True:
        page = await groups.get_group_results(group_id, cursor)
        pages.append(list(page.results))
        cursor = page.cursor
        if cursor is None:
            return pages


async def test_the_values_of_jobs_that_completed(
    redis: Redis, prefix: str, sagas: Sagas, queue: QueueNamer
) -> None:
    stock = StockQueue(StockConnection(redis), prefix, queue("a"))
    jobs = [{"name": name, "queueName": "a"} for name in ("charge", "reserve", "ship")]
    await sagas.groups.add_group("order", jobs, group_id="g")
    holder = await stock.take("token")
    assert holder
    await holder.complete()
    (page,) = await read(sagas.groups, "g")
    assert [(each.job_id, each.name, each.queue_name) for each in page] == [("g-0", "charge", "a")]
    assert page[0].value == json.loads(
        await redis.hget(f"{names.parent_key(prefix, 'g')}:processed", f"{prefix}:a:g-0")  # type: ignore[arg-type]
    )
    await redis.delete(f"{prefix}:a:g-0")
    (page,) = await read(sagas.groups, "g")
    assert page[0].name == ""
    await sagas.groups.cancel_group("g")


async def test_pages_of_many_and_of_large_values(groups: JobGroups, redis: Redis) -> None:
    jobs = [{"name": f"job-{n}", "queueName": "a"} for n in range(300)]
    await groups.add_group("order", jobs, group_id="many")
    await complete(groups, "many", {n: n for n in range(300) if n != 5})
    pages = await read(groups, "many")
    assert [len(page) for page in pages] == [200, 99]
    assert [each.value for page in pages for each in page] == [n for n in range(300) if n != 5]

    await groups.add_group("order", jobs[:4], group_id="large")
    values = {0: "x" * 600_000, 1: "y" * 600_000, 2: "z" * 3_000_000, 3: None}
    await complete(groups, "large", values)
    pages = await read(groups, "large")
    assert [[each.job_id for each in page] for page in pages] == [
        ["large-0"],
        ["large-1"],
        ["large-2"],
        ["large-3"],
    ]


async def test_foreign_values(groups: JobGroups, redis: Redis, prefix: str) -> None:
    jobs = [{"name": f"job-{n}", "queueName": "a"} for n in range(3)]
    await groups.add_group("order", jobs, group_id="g")
    done = f"{names.parent_key(prefix, 'g')}:processed"
    await redis.hset(done, mapping={f"{prefix}:a:g-0": "no JSON", f"{prefix}:a:g-1": "[" * 100_000})
    await redis.hset(done, f"{prefix}:b:stranger", "1")
    await redis.delete(f"{prefix}:a:g-0")
    await redis.set(f"{prefix}:a:g-0", "another type")
    (page,) = await read(groups, "g")
    assert [(each.job_id, each.name, each.value) for each in page] == [
        ("g-0", "", "no JSON"),
        ("g-1", "job-1", "[" * 100_000),
    ]


async def test_no_such_group_and_no_such_cursor(groups: JobGroups) -> None:
    with pytest.raises(GroupNotFoundError):
        await groups.get_group_results("nobody")
    for cursor in ("-1", "x", "1" * 30, ""):
        with pytest.raises(InvalidSpecError, match=r"^cursor: "):
            await groups.get_group_results("nobody", cursor)
