"""A group may have an owner: it hears of every change, whoever drives, and may let the group go."""

import itertools
from collections.abc import Awaitable, Callable

import pytest

from jobgroup import GroupRemovedError, JobGroupError, Store, keys
from jobgroup.plan import Plan, plan_group
from jobgroup.spec import parse_group
from testbed.sagas import Sagas, job, undo
from testbed.stock import StockClient, fails, returns

StartClient = Callable[[str], Awaitable[StockClient]]


def owned(group_id: str, *jobs: dict[str, object], owner: str = "cluster-1") -> Plan:
    undos = {"charge": undo("refund")}
    return plan_group(parse_group("order", jobs, undos), group_id, owner, f"shop/{group_id}")


async def test_the_owner_hears_of_every_change_and_nobody_else_does(
    sagas: Sagas, start_client: StartClient
) -> None:
    store = sagas.groups.store
    members = (job("charge"), job("reserve", "inventory", attempts=2))
    assert await store.create([owned("mine", *members)]) == [True]
    assert await store.create([owned("other", job("charge"), owner="cluster-2")]) == [True]
    await sagas.groups.add_group("headless", [job("charge")], group_id="headless")
    assert await store.resource("mine") == "shop/mine"
    assert await store.resource("headless") is None

    client = await start_client("bullmq6")
    await client.work("payments", {"charge": returns("tx-1")})
    await sagas.ends("other")
    await sagas.ends("headless")
    assert await store.changed("cluster-2", 1) == ["other"]
    assert await store.changed("cluster-1", 0.01) == []

    await client.work("inventory", {"reserve": fails(2, "none left")})
    found = await sagas.reaches("mine", state="COMPENSATING")
    assert (found.owner, found.failed_attempts, found.reason) == ("cluster-1", 2, "none left")
    assert found.failed_at is not None
    assert await store.changed("cluster-1", 1) == ["mine"]
    jobs = await sagas.groups.get_group_jobs("mine")
    assert [(each.status, each.undo) for each in jobs] == [("completed", "pending"), ("failed", "")]

    await client.work("payments:compensation")
    await sagas.ends("mine")
    assert await store.changed("cluster-1", 1) == ["mine"]
    assert [each.undo for each in await sagas.groups.get_group_jobs("mine")] == ["completed", ""]


async def test_several_changes_before_a_look_are_one(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned(name, job("charge")) for name in ("a", "b")])
    for name in ("a", "b"):
        await sagas.groups.cancel_group(name)
        await store.settle([(name, "")])
    assert sorted(await store.changed("cluster-1", 1)) == ["a", "b"]
    assert await store.changed("cluster-1", 0.01) == []


async def test_a_change_is_taken_anew_until_it_was_looked_at(sagas: Sagas) -> None:
    """Whoever takes it may die before it has looked."""
    store = sagas.groups.store
    await store.create([owned(name, job("charge")) for name in ("a", "b")])
    for name in ("a", "b"):
        await sagas.groups.cancel_group(name)
    assert sorted(await store.changed("cluster-1", 1)) == ["a", "b"]
    assert await store.changed("cluster-1", 0.01) == []
    assert sorted(await store.changed("cluster-1", 0.01, again=True)) == ["a", "b"]
    assert await store.changed("cluster-1", 0.01, looked=["a"]) == []
    assert await store.changed("cluster-1", 0.01, again=True) == ["b"]
    assert await store.changed("cluster-1", 0.01, looked=["b"], again=True) == []


async def test_a_change_after_the_look_is_another_one(
    sagas: Sagas, start_client: StartClient
) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"), job("reserve", "inventory"))])
    client = await start_client("bullmq6")
    await client.work("payments", {"charge": returns("tx-1")})
    await client.work("inventory", {"reserve": fails(1, "none left")})
    await sagas.reaches("mine", state="COMPENSATING", undo_count=1)
    assert await store.changed("cluster-1", 1) == ["mine"]
    await client.work("payments:compensation")
    await sagas.ends("mine")
    # The look was at what had changed before.
    assert await store.changed("cluster-1", 1, looked=["mine"]) == ["mine"]
    assert await store.changed("cluster-1", 0.01, again=True) == ["mine"]


async def test_more_changes_than_can_be_taken_at_once_wait_for_nobody(
    sagas: Sagas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobgroup.store.MOST_CHANGES", 2)
    store = sagas.groups.store
    names = [f"group-{n}" for n in range(5)]
    await store.create([owned(name, job("charge")) for name in names])
    for name in names:
        await sagas.groups.cancel_group(name)
    taken = [await store.changed("cluster-1", 60) for _ in range(3)]
    assert [len(ids) for ids in taken] == [2, 2, 1]
    assert sorted(itertools.chain(*taken)) == names
    marker = keys.told(sagas.prefix, "cluster-1")
    assert await sagas.redis.exists(marker) == 0


async def test_a_group_that_was_let_go_is_driven_to_its_end_and_tells_nobody(
    sagas: Sagas, start_client: StartClient
) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    assert await store.disown("mine") is True
    client = await start_client("bullmq6")
    await client.work("payments")
    ended = await sagas.ends("mine")
    assert (ended.state, ended.owner) == ("COMPLETED", "headless")
    assert await store.changed("cluster-1", 0.01) == []


async def test_a_group_that_is_not_there_can_not_be_made_once_it_was_let_go(sagas: Sagas) -> None:
    store = sagas.groups.store
    assert await store.disown("never") is False
    (answer,) = await store.create([owned("never", job("charge"))])
    assert isinstance(answer, JobGroupError)
    assert isinstance(answer, GroupRemovedError)
    assert await store.read("never") is None


async def test_a_removed_group_leaves_no_change_behind(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    await sagas.groups.cancel_group("mine")
    await sagas.groups.remove_group("mine")
    assert await traces(sagas) == []


@pytest.mark.parametrize("leave", [Store.remove, Store.disown])
async def test_nor_does_one_that_is_in_hand(
    sagas: Sagas, leave: Callable[[Store, str], Awaitable[object]]
) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    await sagas.groups.cancel_group("mine")
    assert await store.changed("cluster-1", 1) == ["mine"]
    await leave(store, "mine")
    assert await traces(sagas) == []


async def traces(sagas: Sagas) -> list[str]:
    """Return the keys by which anybody is told of changes."""
    return [key async for key in sagas.redis.scan_iter(f"{sagas.prefix}:_jobgroups:changed:*")]


async def test_groups_are_read_together_and_one_that_cannot_be_holds_up_no_other(
    sagas: Sagas,
) -> None:
    store = sagas.groups.store
    await store.create([owned(name, job("charge")) for name in ("a", "b")])
    spoilt = f"{sagas.prefix}:_jobgroups:spoilt"
    await sagas.redis.set(spoilt, "a text")
    found = await store.read_many(["a", "none", "spoilt", "b"])
    assert [group.id for group in found] == ["a", "b"]
    await sagas.redis.delete(spoilt)


async def test_a_life_of_redis_has_one_name_until_its_data_is_lost(sagas: Sagas) -> None:
    store = sagas.groups.store
    first = await store.epoch()
    assert await store.epoch() == first
    await sagas.redis.delete(f"{sagas.prefix}:_jobgroups:saga:epoch")
    assert await store.epoch() != first
    await sagas.redis.delete(f"{sagas.prefix}:_jobgroups:saga:epoch")
