"""Deadlines and times to live of groups without a resource, and the removal of old groups."""

from typing import Any

import pytest

from jobgroup import Driver, GroupRemovedError, GroupState, InvalidSpecError
from jobgroup.definition.plan import plan_group
from jobgroup.definition.spec import parse_group
from jobgroup.model import names
from jobgroup.model.snapshot import State
from testbed.servers.stock import StockClient, fails, fails_for_good, returns
from testbed.support.sagas import Sagas, job, peek, undo
from testbed.support.waiting import eventually

DAY = 86_400
PAY = [job("pay")]


async def run_once(sagas: Sagas, **settings: Any) -> None:
    """Do all that a driver would do now."""
    driver = Driver(sagas.groups.store, **settings)
    await driver.drain()
    await driver.resync()
    await driver.drain()


async def add(sagas: Sagas, group_id: str, **lifetime: Any) -> None:
    await sagas.groups.add_group("order", PAY, group_id=group_id, **lifetime)


async def add_owned(sagas: Sagas, group_id: str) -> None:
    plan = plan_group(parse_group("order", PAY), group_id, "cluster", "shop/order")
    assert await sagas.groups.store.create([plan]) == [True]


async def due_times(sagas: Sagas) -> dict[str, int]:
    found: Any = await sagas.redis.zrange(names.due_key(sagas.prefix), 0, -1, withscores=True)
    return {group_id: int(score) for group_id, score in found}


async def pass_deadline(sagas: Sagas, group_id: str) -> None:
    await sagas.redis.zadd(names.due_key(sagas.prefix), {group_id: 1})


async def end_earlier(sagas: Sagas, *group_ids: str, seconds: int = DAY) -> None:
    """Move the ends of groups to an earlier time."""
    for group_id in group_ids:
        key = names.group_key(sagas.prefix, "payments", group_id)
        finished = int(str(await sagas.redis.hget(key, "finishedAt"))) - seconds * 1000
        await sagas.redis.hset(key, "finishedAt", finished)
        await sagas.redis.zincrby(names.parked_key(sagas.prefix), -seconds * 1000, group_id)


async def is_gone(sagas: Sagas, group_id: str) -> bool:
    return await peek(sagas.groups.store, group_id) is None


async def fail_undo(sagas: Sagas, client: StockClient, group_id: str, **lifetime: Any) -> None:
    """Run a group whose undo fails the first time."""
    jobs = [job("pay"), job("ship", "shipping")]
    undos = {"pay": undo("refund", attempts=1)}
    await sagas.groups.add_group("order", jobs, undos, group_id, **lifetime)
    await client.work("payments", {"pay": returns(1)})
    await client.work("payments:compensation", {"refund": fails(1, "account closed")})
    await sagas.reaches(group_id, completed_count=1)
    await client.work("shipping", {"ship": fails_for_good("no stock")})
    await sagas.reaches(group_id, state="FAILED_COMPENSATION")


async def pruned(sagas: Sagas, *states: State, **how: Any) -> tuple[set[str], int]:
    found, owned = set(), 0
    kinds: dict[str, Any] = {"states": states} if states else {}
    async for page in sagas.groups.prune_groups(DAY - 60, **kinds, **how):
        found |= set(page.group_ids)
        owned += page.owned
    return found, owned


async def test_a_group_is_removed_after_its_time_to_live(sagas: Sagas, client: StockClient) -> None:
    await add(sagas, "at-once", ttl=0)
    await add(sagas, "later", ttl=DAY)
    await add(sagas, "kept")
    await client.work("payments", {"pay": returns(1)})
    await eventually(lambda: is_gone(sagas, "at-once"))
    with pytest.raises(GroupRemovedError):
        await add(sagas, "at-once")
    later = await sagas.ends("later")
    assert (later.ttl_seconds, later.deadline_seconds) == (DAY, None)
    assert await due_times(sagas) == {"later": (later.finished_at or 0) + DAY * 1000}
    await sagas.ends("kept")
    await run_once(sagas)
    assert not await is_gone(sagas, "later")
    assert not await is_gone(sagas, "kept")
    await sagas.groups.remove_group("later")
    assert await due_times(sagas) == {}


async def test_a_group_is_cancelled_at_its_deadline(sagas: Sagas, client: StockClient) -> None:
    jobs = [job("pay"), job("ship", "shipping")]
    node = await sagas.groups.add_group("order", jobs, {"pay": undo("refund")}, deadline=DAY)
    await client.work("payments", {"pay": returns(1)})
    group = await sagas.reaches(node.group_id, completed_count=1)
    ((due_id, due_at),) = (await due_times(sagas)).items()
    # createdAt is the time of the client, the deadline counts from the time of Redis.
    assert due_id == node.group_id
    assert abs(due_at - group.created_at - DAY * 1000) < DAY * 1000 / 2
    await pass_deadline(sagas, node.group_id)
    await client.work("payments:compensation", {"refund": returns(None)})
    ended = await sagas.ends(node.group_id)
    assert (ended.state, ended.reason, ended.undone_count) == ("FAILED", "DeadlineExceeded", 1)
    assert (ended.deadline_seconds, ended.cancelled_count) == (DAY, 1)

    async def is_forgotten() -> bool:
        return await due_times(sagas) == {}

    await eventually(is_forgotten)


async def test_a_deadline_that_passes_after_the_end_changes_nothing(
    sagas: Sagas, client: StockClient
) -> None:
    await add(sagas, "done", deadline=DAY)
    await add(sagas, "kept", deadline=DAY, ttl=DAY)
    await client.work("payments", {"pay": returns(1)})
    for group_id in ("done", "kept"):
        await sagas.ends(group_id)
        await pass_deadline(sagas, group_id)
    await run_once(sagas)
    kept = await sagas.ends("kept")
    assert await due_times(sagas) == {"kept": (kept.finished_at or 0) + DAY * 1000}
    assert (await sagas.ends("done")).state == kept.state == "COMPLETED"


async def test_a_failed_compensation_does_not_expire_until_it_is_resolved(
    sagas: Sagas, client: StockClient
) -> None:
    await fail_undo(sagas, client, "g", ttl=0)
    assert await due_times(sagas) == {}
    # Not even with an entry that should not be there, or with a TTL for all groups.
    await pass_deadline(sagas, "g")
    await run_once(sagas, group_ttl_seconds=0)
    assert (await sagas.read("g")).state == "FAILED_COMPENSATION"
    assert await pruned(sagas) == (set(), 0)

    # A stock client retries the undo, which succeeds the second time.
    await client.manage("payments:compensation", "retry", job=names.undo_id("g-0"))
    await eventually(lambda: is_gone(sagas, "g"))


async def test_the_ttl_of_groups_without_a_resource(sagas: Sagas, client: StockClient) -> None:
    await add(sagas, "old")
    await add(sagas, "young")
    await add(sagas, "own", ttl=2 * DAY)
    await add(sagas, "refused")
    await add_owned(sagas, "owned")
    await sagas.groups.cancel_group("refused")
    await client.work("payments", {"pay": returns(1)})
    for group_id in ("old", "young", "own", "owned", "refused"):
        await sagas.ends(group_id)
    await end_earlier(sagas, "old", "own", "owned", "refused")
    await run_once(sagas)
    assert not await is_gone(sagas, "old")
    await run_once(sagas, group_ttl_seconds=DAY - 60)
    gone = {
        each for each in ("old", "young", "own", "owned", "refused") if await is_gone(sagas, each)
    }
    assert gone == {"old", "refused"}


async def test_prune_removes_old_groups_in_pieces(sagas: Sagas, client: StockClient) -> None:
    many = [f"many-{n}" for n in range(150)]
    await sagas.groups.add_groups([{"name": "order", "jobs": PAY, "group_id": m} for m in many])
    large = [{**job("pay"), "name": f"pay-{n}"} for n in range(130)]
    await sagas.groups.add_group("order", large, group_id="large")
    await add(sagas, "young")
    for owned in range(70):
        await add_owned(sagas, f"a-owned-{owned}")
    await client.work("payments", {"*": returns(1)}, concurrency=50)
    for group_id in (*many, "large", "young", *(f"a-owned-{n}" for n in range(70))):
        await sagas.ends(group_id)
    old = (*many, "large", *(f"a-owned-{n}" for n in range(70)))
    await end_earlier(sagas, *old)
    # In one millisecond, so that a page ends among groups of the same score.
    score = await sagas.redis.zscore(names.parked_key(sagas.prefix), "large")
    await sagas.redis.zadd(names.parked_key(sagas.prefix), dict.fromkeys(old, score or 0))

    assert await pruned(sagas, "COMPLETED", dry_run=True) == ({*many, "large"}, 70)
    assert not await is_gone(sagas, "large")
    assert await pruned(sagas) == ({*many, "large"}, 70)
    assert await pruned(sagas) == (set(), 70)
    assert not await is_gone(sagas, "young")
    assert await sagas.keys("payments:many-*") == []


async def test_prune_removes_failed_compensations_only_by_name(
    sagas: Sagas, client: StockClient
) -> None:
    await fail_undo(sagas, client, "g", ttl=DAY)
    await end_earlier(sagas, "g")
    assert await pruned(sagas) == (set(), 0)
    assert await pruned(sagas, "FAILED_COMPENSATION", dry_run=True) == ({"g"}, 0)
    assert await pruned(sagas, "FAILED_COMPENSATION") == ({"g"}, 0)
    assert await is_gone(sagas, "g")


async def test_what_cannot_be_pruned_is_refused(sagas: Sagas) -> None:
    for states, age in ((["ACTIVE"], 1), ([], -1), ([], None)):
        with pytest.raises(InvalidSpecError):
            async for _ in sagas.groups.prune_groups(age, states):  # type: ignore[arg-type]
                pass


@pytest.mark.parametrize(
    ("lifetime", "sentence"),
    [
        ({"ttl": -1}, "^ttl: Input should be a whole number of seconds from 0 to 315360000$"),
        ({"ttl": 1.5}, "^ttl: "),
        ({"ttl": True}, "^ttl: "),
        ({"ttl": "7d"}, "^ttl: "),
        ({"deadline": 0}, "^deadline: Input should be a whole number of seconds from 1 to"),
        ({"deadline": 315_360_001}, "^deadline: "),
    ],
)
async def test_a_lifetime_that_means_nothing_is_refused(
    sagas: Sagas, lifetime: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidSpecError, match=sentence):
        await add(sagas, "g", **lifetime)
    assert await sagas.keys("payments*") == []


async def test_a_lifetime_is_not_part_of_the_definition(sagas: Sagas) -> None:
    await add(sagas, "g", ttl=DAY)
    await add(sagas, "g", ttl=2 * DAY, deadline=DAY)
    group: GroupState = await sagas.read("g")
    assert (group.ttl_seconds, group.deadline_seconds) == (DAY, None)
    assert await due_times(sagas) == {}


async def test_a_time_to_live_survives_the_loss_of_a_key(sagas: Sagas, client: StockClient) -> None:
    await add(sagas, "hash", ttl=DAY)
    await add(sagas, "parent", ttl=DAY)
    await sagas.redis.delete(names.group_key(sagas.prefix, "payments", "hash"))
    await sagas.redis.delete(names.parent_key(sagas.prefix, "parent"))
    await run_once(sagas)
    await client.work("payments", {"pay": returns(1)})
    for group_id in ("hash", "parent"):
        assert (await sagas.ends(group_id)).ttl_seconds == DAY
    assert set(await due_times(sagas)) == {"hash", "parent"}
    stored = await sagas.redis.hget(names.parent_key(sagas.prefix, "parent"), "ttlSeconds")
    assert stored == str(DAY)


async def test_a_key_of_due_times_of_another_type_stops_no_group(
    sagas: Sagas, client: StockClient
) -> None:
    await sagas.stop()
    await add(sagas, "g", ttl=0)
    await sagas.redis.set(names.due_key(sagas.prefix), "of another type")
    await client.work("payments", {"pay": returns(1)})
    await client.heard("completed", name="pay")
    await sagas.groups.store.wakeups.settle()
    assert (await sagas.read("g")).state == "COMPLETED"
    await sagas.groups.remove_group("g")
    await sagas.redis.delete(names.due_key(sagas.prefix))


async def test_an_entry_without_a_group_is_dropped(sagas: Sagas) -> None:
    await pass_deadline(sagas, "nobody")

    async def is_dropped() -> bool:
        return await due_times(sagas) == {}

    await eventually(is_dropped)
