"""A group may have an owner: it hears of every change, whoever drives, and may let the group go."""

from collections.abc import Awaitable, Callable

from jobgroup import GroupRemovedError, JobGroupError
from jobgroup.plan import Plan, plan_group
from jobgroup.spec import parse_group
from jobgroup.store import WORD
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
    assert await store.changed(["cluster-2"], 1) == ["other"]
    assert await store.changed(["cluster-1"], 0.01) == []

    await client.work("inventory", {"reserve": fails(2, "none left")})
    found = await sagas.reaches("mine", state="COMPENSATING")
    assert (found.owner, found.failed_attempts, found.reason) == ("cluster-1", 2, "none left")
    assert found.failed_at is not None
    assert await store.changed(["cluster-1"], 1) == ["mine"]
    jobs = await sagas.groups.get_group_jobs("mine")
    assert [(each.status, each.undo) for each in jobs] == [("completed", "pending"), ("failed", "")]

    await client.work("payments:compensation")
    await sagas.ends("mine")
    assert await store.changed(["cluster-1"], 1) == ["mine"]
    assert [each.undo for each in await sagas.groups.get_group_jobs("mine")] == ["completed", ""]


async def test_several_changes_before_a_look_are_one(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned(name, job("charge")) for name in ("a", "b")])
    for name in ("a", "b"):
        await sagas.groups.cancel_group(name)
        await store.settle([(name, "")])
    assert sorted(await store.changed(["cluster-1"], 1)) == ["a", "b"]
    assert await store.changed(["cluster-1"], 0.01) == []


async def test_word_can_be_left_for_another_and_does_not_wait_for_ever(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned(name, job("charge")) for name in ("a", "b")])
    await store.pass_on("a", "cluster-1/shop")
    assert 0 < await sagas.redis.pttl(f"{sagas.prefix}:_jobgroups:changed:cluster-1/shop") <= WORD
    await sagas.groups.cancel_group("b")
    heard = [await store.changed(["cluster-1/shop", "cluster-1"], 1) for _ in range(2)]
    assert heard == [["a"], ["b"]]
    assert await store.changed(["cluster-1/shop", "cluster-1"], 0.01) == []


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
    assert await store.changed(["cluster-1"], 0.01) == []


async def test_a_group_that_is_not_there_can_not_be_made_once_it_was_let_go(sagas: Sagas) -> None:
    store = sagas.groups.store
    assert await store.disown("never") is False
    (answer,) = await store.create([owned("never", job("charge"))])
    assert isinstance(answer, JobGroupError)
    assert isinstance(answer, GroupRemovedError)
    assert await store.read("never") is None


async def test_a_group_that_is_forbidden_can_not_be_made_and_one_that_is_there_stays(
    sagas: Sagas,
) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    before = await store.read("mine")
    assert await store.forbid("mine") is True
    assert await store.read("mine") == before
    assert await store.create([owned("mine", job("charge"))]) == [False]

    assert await store.forbid("never") is False
    (answer,) = await store.create([owned("never", job("charge"))])
    assert isinstance(answer, GroupRemovedError)
    assert await store.read("never") is None


async def test_a_removed_group_leaves_no_change_behind(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    await sagas.groups.cancel_group("mine")
    await sagas.groups.remove_group("mine")
    assert await store.changed(["cluster-1"], 0.01) == []


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
