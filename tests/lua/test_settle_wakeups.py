"""settle_wakeups.lua on a real Redis: it completes most groups with few commands."""

import itertools
import re
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from jobgroup import JobGroups, Store
from jobgroup.definition.plan import plan_group
from jobgroup.definition.spec import parse_group
from jobgroup.errors import NewerFormatError
from jobgroup.model import names
from jobgroup.model.snapshot import Settled
from testbed.support.fixtures import QueueNamer
from testbed.support.waiting import eventually
from tests.sagas.histories.stock_queue import StockConnection, StockQueue

PAY: dict[str, Any] = {"name": "pay", "queueName": "a"}
OWNER = "operator"
PLAIN: dict[str, list[dict[str, Any]]] = {
    "one job": [PAY],
    "three jobs": [PAY] * 3,
    "many jobs": [PAY] * 40,
    "delayed": [PAY, {**PAY, "opts": {"delay": 1}}],
    "prioritized": [PAY, {**PAY, "opts": {"priority": 2}}],
    "jobs that are not kept": [PAY, {**PAY, "opts": {"removeOnComplete": True}}],
    "the newest jobs are kept": [{**PAY, "opts": {"removeOnComplete": {"count": 1}}}] * 3,
    "several rules": [
        {**PAY, "opts": {"removeOnComplete": {"count": count}}} for count in (7, 8, 9)
    ],
}


@pytest.fixture
async def store(redis: Redis, operator_redis: Redis, prefix: str) -> AsyncIterator[Store]:
    """Return a store; all keys are deleted afterwards."""
    yield Store(operator_redis, prefix)
    await redis.delete(prefix, *[key async for key in redis.scan_iter(f"{prefix}*")])


@pytest.fixture
def stock(redis: Redis, prefix: str, queue: QueueNamer) -> StockQueue:
    return StockQueue(StockConnection(redis), prefix, queue("a"))


async def add(
    store: Store,
    jobs: list[dict[str, Any]],
    undos: Any = None,
    owner: str = "",
    group_id: str = "g",
) -> None:
    definition = parse_group("order", jobs, undos)
    plan = plan_group(definition, group_id, owner or names.HEADLESS, "shop/order" if owner else "")
    assert await store.create([plan]) == [True]


async def add_finished(redis: Redis, key: str, count: int) -> None:
    """Add jobs to a set of jobs that have finished: those of other producers, the newest ones."""
    await redis.zadd(key, {f"other-{n}": 2**50 + n for n in range(count)})


async def complete(stock: StockQueue, jobs: int) -> None:
    """Complete this number of jobs."""

    async def completes() -> bool:
        holder = await stock.take("token")
        if holder:
            await holder.complete()
        return holder is not None

    for _ in range(jobs):
        await eventually(completes)


async def keys(redis: Redis, prefix: str) -> dict[str, Any]:
    """Read all keys, with `now` in place of the time at which the group was settled."""
    pool = redis.connection_pool
    # Some values are bytes.
    options = {**pool.connection_kwargs, "encoding": "latin-1"}
    same = type(pool)(connection_class=pool.connection_class, **options)
    async with Redis.from_pool(same) as reader:
        found = [key async for key in reader.scan_iter(f"{prefix}:*")]
        return {key: await value(reader, prefix, key) for key in found}


async def value(redis: Redis, prefix: str, key: str) -> Any:
    now = await redis.hget(f"{prefix}:a:groups:g", "finishedAt")

    def masked(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: masked(each) for name, each in value.items()}
        since = int(value) % 10**14 if isinstance(value, float) else value
        return "now" if str(since) == now else value

    match await redis.type(key):
        case "hash":
            return masked(await redis.hgetall(key))
        case "zset":
            return masked(dict(cast(Any, await redis.zrange(key, 0, -1, withscores=True))))
        case "stream":
            return [fields for _, fields in await redis.xrange(key) or []]
        case "list":
            return await redis.lrange(key, 0, -1)
        case "set":
            return await redis.smembers(key)
        case _:
            return await redis.get(key)


async def settle_both_ways(redis: Redis, store: Store) -> tuple[Settled, Settled]:
    """Settle a group that was woken by both scripts; compare what each leaves in Redis."""
    prefix, saved = store.prefix, f"{store.prefix}-saved"
    # A time that equals that of the settle would be masked too.
    began = await redis.time()

    async def is_later() -> bool:
        return [*await redis.time()] > [began[0], began[1] + 2000]

    await eventually(is_later)
    woken = [key async for key in redis.scan_iter(f"{prefix}:*")]
    for key in woken:
        await redis.copy(key, saved + key)
    ((_, by_list),) = await store.wakeups.settle()
    left_by_list = await keys(redis, prefix)
    await redis.delete(*left_by_list)
    for key in woken:
        await redis.copy(saved + key, key)
    (by_id,) = await store.settle(["g"])
    await redis.lrem(names.wakeups_key(prefix), 1, "g")
    assert left_by_list == await keys(redis, prefix)
    assert isinstance(by_list, Settled)
    assert isinstance(by_id, Settled)
    assert (by_list.state, by_list.entered) == (by_id.state, by_id.entered)
    assert (by_list.more, by_list.changed) == (by_id.more, by_id.changed)
    return by_list, by_id


def is_short(settled: Settled) -> bool:
    """Return whether the reply was only a number."""
    return settled == Settled(
        state="COMPLETED", entered=("COMPLETED",), changed=True, ran_for=settled.ran_for
    )


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("owner", ["", OWNER])
@pytest.mark.parametrize("undos", [None, {"pay": {"name": "refund"}}], ids=["", "undos"])
async def test_a_completed_group_has_the_keys_that_settle_group_leaves(
    redis: Redis, store: Store, stock: StockQueue, name: str, owner: str, undos: Any
) -> None:
    await add(store, PLAIN[name], undos, owner)
    await complete(stock, len(PLAIN[name]))
    by_list, by_id = await settle_both_ways(redis, store)
    assert is_short(by_list)
    assert not is_short(by_id)
    assert by_id.ran_for is not None


async def test_a_group_with_more_rules_than_one_call_applies_has_the_keys_that_settle_group_leaves(
    redis: Redis, prefix: str, store: Store, stock: StockQueue
) -> None:
    await add_finished(redis, f"{prefix}:a:completed", 2000)
    await add(store, PLAIN["several rules"])
    await complete(stock, 3)
    by_list, by_id = await settle_both_ways(redis, store)
    assert by_list.more
    assert by_id.more


async def test_a_released_group_has_the_keys_that_settle_group_leaves(
    redis: Redis, store: Store, stock: StockQueue
) -> None:
    await add(store, [PAY, PAY], owner=OWNER)
    await store.orphan("g", release=True)
    await complete(stock, 2)
    by_list, _ = await settle_both_ways(redis, store)
    assert is_short(by_list)


async def test_a_completed_member_that_was_replaced_is_not_sealed(
    redis: Redis, prefix: str, store: Store, stock: StockQueue
) -> None:
    await add(store, [PAY, PAY])
    await complete(stock, 2)
    await redis.hset(f"{prefix}:a:g-0", "parentKey", "of another producer")
    by_list, _ = await settle_both_ways(redis, store)
    assert is_short(by_list)
    assert await redis.hget(f"{prefix}:a:g-0", "parentKey") == "of another producer"
    assert await redis.hget(f"{prefix}:a:g-1", "parentKey") == f"{prefix}:_jobgroups:g:sealed"


async def test_a_foreign_job_does_not_take_the_place_of_a_member(
    redis: Redis, prefix: str, store: Store, stock: StockQueue
) -> None:
    await add(store, [PAY, PAY])
    await complete(stock, 1)
    # What stock clients do: the other job is removed, and a job that names our parent completes.
    await redis.lrem(f"{prefix}:a:wait", 1, "g-1")
    await redis.delete(f"{prefix}:a:g-1")
    parent = f"{prefix}:_jobgroups:g"
    await redis.srem(f"{parent}:dependencies", f"{prefix}:a:g-1")
    await redis.hset(f"{parent}:processed", f"{prefix}:a:foreign", "null")
    await redis.rpush(names.wakeups_key(prefix), "g")
    by_list, _ = await settle_both_ways(redis, store)
    assert (by_list.state, by_list.entered) == ("COMPENSATING", ("COMPENSATING",)) or (
        by_list.entered == ("COMPENSATING", "FAILED")
    )


@pytest.mark.parametrize(
    ("completed", "entered"), [(0, ("FAILED",)), (1, ("COMPENSATING", "FAILED"))]
)
async def test_a_failed_group_reports_each_state_that_it_entered(
    redis: Redis, store: Store, stock: StockQueue, completed: int, entered: tuple[str, ...]
) -> None:
    await add(store, [PAY] * (completed + 2))
    await complete(stock, completed)
    holder = await stock.take("token")
    assert holder
    await holder.fail("declined", finally_=True)
    by_list, _ = await settle_both_ways(redis, store)
    assert by_list.entered == entered
    assert by_list.failed_queues == ("a",)


# What people and other clients do to a group whose jobs have completed, as commands: `B` is the
# base key of its queue, `J` is its pseudo parent.
INTERFERENCE = {
    "a request to give up": "HSET J requested cancelled",
    "the hash of the group is gone": "DEL B:groups:g",
    "the list of its jobs is gone": "DEL B:groups:g:jobs",
    "a member was cancelled": "HSET B:groups:g:jobs B:g-0 cancelled",
    "a member is missing": "HDEL J:processed B:g-0",
    "a member is open": "SADD J:dependencies B:g-0",
    "a member failed and was retried": "ZADD J:unsuccessful 1 B:g-0",
    "a foreign job is open": "SADD J:dependencies B:foreign",
    "a foreign job failed": "ZADD J:unsuccessful 1 B:foreign",
    "a foreign job completed, too": "HSET J:processed B:foreign null",
    "there are undos": "HSET J-undo queue a",
    "it has ended": "HSET B:groups:g state COMPLETED",
    "it is being undone": "HSET B:groups:g state COMPENSATING",
    "its size is unknown": "HSET B:groups:g totalJobs 3",
}


@pytest.mark.parametrize("name", INTERFERENCE)
async def test_a_group_with_anything_unusual_is_settled_with_all_checks(
    redis: Redis, prefix: str, store: Store, stock: StockQueue, name: str
) -> None:
    await add(store, [PAY, PAY], {"pay": {"name": "refund"}})
    await complete(stock, 2)
    at = {"B": f"{prefix}:a", "J": f"{prefix}:_jobgroups:g"}
    command = [re.sub("^[BJ]", lambda key: at[key[0]], word) for word in INTERFERENCE[name].split()]
    await cast(Any, redis).execute_command(*command)
    ((_, settled),) = await store.wakeups.settle()
    assert isinstance(settled, Settled)
    assert not is_short(settled)


async def test_a_group_with_more_members_than_fit_into_a_command_is_settled(
    redis: Redis, prefix: str, store: Store
) -> None:
    await add(store, [PAY] * 1001)
    parent = f"{prefix}:_jobgroups:g"
    members = await redis.smembers(f"{parent}:dependencies")
    await redis.hset(f"{parent}:processed", mapping=dict.fromkeys(members, "null"))
    await redis.delete(f"{parent}:dependencies")
    await redis.rpush(names.wakeups_key(prefix), "g")
    by_list, _ = await settle_both_ways(redis, store)
    assert by_list.state == "COMPLETED"
    assert not is_short(by_list)


@pytest.mark.parametrize("token", ["g", "g-undo"])
async def test_a_second_entry_of_a_group_changes_nothing(
    redis: Redis, prefix: str, store: Store, stock: StockQueue, token: str
) -> None:
    await add(store, [PAY, PAY])
    await complete(stock, 2)
    await redis.rpush(names.wakeups_key(prefix), token)
    (_, first), (entry, second) = await store.wakeups.settle(limit=10)
    assert isinstance(first, Settled)
    assert isinstance(second, Settled)
    assert is_short(first)
    assert (entry, second.state, second.changed) == (token, "COMPLETED", False)
    assert await redis.llen(names.wakeups_key(prefix)) == 0
    group = await store.read("g")
    assert group
    assert group.finished_at
    assert await redis.zscore(names.parked_key(prefix), "g") == 2e15 + group.finished_at
    left = await keys(redis, prefix)
    told = [fields["event"] for fields in left[f"{prefix}:a:events"]]
    assert told.count("group:completed") == 1


async def test_a_group_of_a_newer_format_stays_on_the_list(
    redis: Redis, prefix: str, store: Store, stock: StockQueue
) -> None:
    await add(store, [PAY])
    await complete(stock, 1)
    await redis.hset(f"{prefix}:_jobgroups:g", "format", "99")
    await redis.delete(names.marker_key(prefix))
    ((_, result),) = await store.wakeups.settle()
    assert isinstance(result, NewerFormatError)
    assert await redis.exists(names.marker_key(prefix)) == 0
    assert await redis.hget(f"{prefix}:a:groups:g", "state") == "ACTIVE"
    assert await redis.lrange(names.wakeups_key(prefix), 0, -1) == ["g"]


@pytest.mark.parametrize("field", ["cancelledCount", "name"])
async def test_a_group_without_a_field_of_its_hash_is_not_announced(
    redis: Redis, prefix: str, store: Store, stock: StockQueue, field: str
) -> None:
    await add(store, [PAY])
    await complete(stock, 1)
    await redis.hdel(f"{prefix}:a:groups:g", field)
    for _ in range(2):
        ((_, result),) = await store.wakeups.settle()
        assert isinstance(result, Exception)
    left = await keys(redis, prefix)
    assert "group:completed" not in [fields["event"] for fields in left[f"{prefix}:a:events"]]
    assert await redis.hget(f"{prefix}:a:groups:g", "state") == "ACTIVE"


@pytest.mark.parametrize("gone", ["_jobgroups:tomb:g", "_jobgroups:g"])
async def test_a_group_that_is_removed_is_not_completed(
    redis: Redis, prefix: str, store: Store, stock: StockQueue, gone: str
) -> None:
    await add(store, [PAY])
    await complete(stock, 1)
    if gone.endswith("tomb:g"):
        await redis.set(f"{prefix}:{gone}", 1)
    else:
        await redis.delete(f"{prefix}:{gone}")
    ((_, result),) = await store.wakeups.settle()
    assert result is None
    assert await redis.hget(f"{prefix}:a:groups:g", "state") == "ACTIVE"
    assert await redis.llen(names.wakeups_key(prefix)) == 0


async def test_a_call_that_leaves_entries_wakes_the_next_driver(
    redis: Redis, prefix: str, store: Store, stock: StockQueue
) -> None:
    await add(store, [PAY])
    await complete(stock, 1)
    await redis.delete(names.marker_key(prefix))
    await redis.rpush(names.wakeups_key(prefix), "unknown", "unknown")
    assert len(await store.wakeups.settle(limit=1)) == 1
    assert await redis.exists(names.marker_key(prefix)) == 1
    await redis.delete(names.marker_key(prefix))
    assert len(await store.wakeups.settle(limit=9)) == 2
    assert await redis.exists(names.marker_key(prefix)) == 0


RULE = {"count": 1, "age": 3600}


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_a_call_that_examines_many_jobs_for_their_retention_settles_few_groups(
    redis: Redis, prefix: str, store: Store, stock: StockQueue, outcome: str
) -> None:
    await add_finished(redis, f"{prefix}:a:{outcome}", 1001)
    for n in range(4):
        job = {**PAY, "opts": {"removeOnComplete": RULE, "removeOnFail": RULE}}
        await add(store, [job], group_id=f"g{n}")
    if outcome == "completed":
        await complete(stock, 4)
    else:
        for _ in range(4):
            holder = await stock.take("token")
            assert holder
            await holder.fail("declined", finally_=True)
    assert [len(await store.wakeups.settle(limit=9)) for _ in range(3)] == [2, 2, 0]


async def test_a_group_that_cannot_be_settled_ends_a_call(
    redis: Redis, prefix: str, store: Store, stock: StockQueue
) -> None:
    for n in range(3):
        await add(store, [{**PAY, "opts": {"removeOnComplete": RULE}}], group_id=f"g{n}")
        await redis.hset(f"{prefix}:_jobgroups:g{n}", "retention", "x")
    await complete(stock, 3)
    settled = [await store.wakeups.settle(skip, limit=9) for skip in range(3)]
    assert [[isinstance(each, Exception) for _, each in found] for found in settled] == [[True]] * 3


async def test_jobs_that_are_not_to_be_kept_are_removed_in_several_calls(
    redis: Redis, prefix: str, store: Store, stock: StockQueue
) -> None:
    await add(store, [PAY], group_id="ended")
    await complete(stock, 1)
    await store.wakeups.settle()
    old = [f"old-{n}" for n in range(1500)]
    parent = f"{prefix}:_jobgroups:ended"
    await redis.zadd(f"{prefix}:a:completed", dict.fromkeys(old, 1))
    await redis.hset(f"{parent}:processed", mapping={f"{prefix}:a:{each}": "null" for each in old})
    for job_id in old:
        await redis.hset(f"{prefix}:a:{job_id}", "parentKey", f"{parent}:sealed")
    await add(store, [{**PAY, "opts": {"removeOnComplete": {"count": 2}}}] * 2)
    await complete(stock, 2)
    left = [await redis.zcard(f"{prefix}:a:completed")]
    while await store.wakeups.settle():
        left.append(await redis.zcard(f"{prefix}:a:completed"))
    # 1,501 jobs exceed the count, and the rule examines 1,000 of them.
    assert [before - after for before, after in itertools.pairwise(left)] == [500, 500]


async def test_few_calls_apply_the_rules_of_members_in_turns(
    redis: Redis, prefix: str, store: Store, stock: StockQueue
) -> None:
    await add_finished(redis, f"{prefix}:a:completed", 1999)
    rules = [{"count": count, "age": 3600} for count in (1, 2, 3)] * 10
    await add(store, [{**PAY, "opts": {"removeOnComplete": rule}} for rule in rules])
    await complete(stock, 30)
    more = []
    while settled := await store.wakeups.settle():
        ((_, result),) = settled
        assert isinstance(result, Settled)
        more.append(result.more)
    assert more == [True, False]


async def test_snapshots_are_returned_if_asked_for(
    redis: Redis, store: Store, stock: StockQueue
) -> None:
    for asked in (True, False):
        await add(store, [PAY])
        await complete(stock, 1)
        ((_, settled),) = await store.wakeups.settle(snapshots=asked)
        assert isinstance(settled, Settled)
        assert settled.state == "COMPLETED"
        assert (settled.group == await store.read("g")) is asked
        await JobGroups(store).remove_group("g")
        await redis.delete(f"{store.prefix}:_jobgroups:tomb:g")
