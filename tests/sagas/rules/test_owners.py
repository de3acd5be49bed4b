"""A group may have an owner: it hears of every change, whoever drives, and may let the group go."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.exceptions import ResponseError

from jobgroup import (
    GroupExistsError,
    GroupRemovedError,
    JobGroupError,
    SpoiltKeyError,
    Store,
    keys,
)
from jobgroup.observer import Observer
from jobgroup.plan import Plan, plan_group
from jobgroup.scripts import _send as send
from jobgroup.scripts import load, run_all
from jobgroup.spec import parse_group
from jobgroup.streams import START
from testbed.sagas import Sagas, job, undo
from testbed.stock import StockClient, fails, returns
from testbed.waiting import eventually

StartClient = Callable[[str], Awaitable[StockClient]]


async def changes(sagas: Sagas, owner: str = "cluster-1") -> list[str]:
    """Return the groups that an owner was told of so far, in order."""
    return [group_id for _, group_id in await sagas.groups.store.streams.changes(owner, START, 0)]


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

    client = await start_client("bullmq6")
    await client.work("payments", {"charge": returns("tx-1")})
    await sagas.ends("other")
    await sagas.ends("headless")
    assert await changes(sagas, "cluster-2") == ["other"]
    assert await changes(sagas) == []

    await client.work("inventory", {"reserve": fails(2, "none left")})
    found = await sagas.reaches("mine", state="COMPENSATING")
    assert (found.owner, found.failed_attempts, found.reason) == ("cluster-1", 2, "none left")
    assert found.failed_at is not None
    assert set(await changes(sagas)) == {"mine"}
    newest = await store.streams.newest_change("cluster-1")
    jobs = await sagas.groups.get_group_jobs("mine")
    assert [(each.status, each.undo) for each in jobs] == [("completed", "pending"), ("failed", "")]

    await client.work("payments:compensation")
    await sagas.ends("mine")
    assert {group_id for _, group_id in await store.streams.changes("cluster-1", newest, 0)} == {
        "mine"
    }
    assert [each.undo for each in await sagas.groups.get_group_jobs("mine")] == ["completed", ""]


async def test_a_change_wakes_whoever_waits_for_it(sagas: Sagas) -> None:
    store = sagas.groups.store
    assert await store.streams.newest_change("cluster-1") == START
    assert await store.streams.changes("cluster-1", START, 0) == []
    await store.create([owned("mine", job("charge"))])
    async with asyncio.TaskGroup() as tasks:
        waits = tasks.create_task(store.streams.changes("cluster-1", START, 60))
        await eventually(lambda: is_read(sagas))
        await sagas.groups.cancel_group("mine")
    newest = await store.streams.newest_change("cluster-1")
    assert waits.result() == [(newest, "mine")]


async def is_read(sagas: Sagas) -> bool:
    """Say whether somebody waits for an entry of a stream."""
    clients = await sagas.redis.client_list()
    return any(each["cmd"] == "xread" for each in clients)


async def test_what_an_owner_was_told_does_not_grow_for_ever(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    stream = keys.changed(sagas.prefix, "cluster-1")
    pipeline = sagas.redis.pipeline(transaction=False)
    for _ in range(15_000):
        pipeline.xadd(stream, {"group": "another"})
    await pipeline.execute()
    await sagas.groups.cancel_group("mine")
    # Redis lets go of a hundred entries at a time, and not of one more than it must.
    assert 10_000 <= await sagas.redis.xlen(stream) < 10_100


async def test_each_reader_has_a_place_of_its_own(sagas: Sagas) -> None:
    store = sagas.groups.store
    assert await store.streams.place("cluster-1", "shop/operator") == START
    await store.streams.keep_place("cluster-1", "shop/operator", "5-1")
    assert await store.streams.place("cluster-1", "shop/operator") == "5-1"
    assert await store.streams.place("cluster-1", "bank/operator") == START
    assert await store.streams.place("cluster-2", "shop/operator") == START


async def test_an_owner_finds_what_it_calls_its_groups_and_no_others(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned(name, job("charge")) for name in ("a", "b", "let-go")])
    await store.create([owned("other", job("charge"), owner="cluster-2")])
    await sagas.groups.add_group("order", [job("charge")], group_id="headless")
    await store.disown("let-go")
    spoilt = keys.parent(sagas.prefix, "spoilt")
    await sagas.redis.set(spoilt, "a text")
    names = ["a", "none", "spoilt", "let-go", "other", "headless", "b"]
    assert await store.resources("cluster-1", names) == {"a": "shop/a", "b": "shop/b"}
    await sagas.redis.delete(spoilt)


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
    assert await changes(sagas) == []


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


async def test_a_removed_group_is_one_that_its_owner_does_not_find(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    await sagas.groups.cancel_group("mine")
    await sagas.groups.remove_group("mine")
    assert await changes(sagas) == ["mine"]
    assert await store.resources("cluster-1", ["mine"]) == {}


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


async def test_a_look_brings_a_group_its_jobs_and_the_epoch_along(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"), job("ship"))])
    epoch = await store.epoch()
    await sagas.redis.script_flush()
    group = await store.read("mine")  # so that Redis knows one of the scripts, and not the others
    found = await store.look("mine", jobs=True, epoch=True)
    jobs = await store.read_jobs("mine")
    assert found == (group, jobs, epoch)
    assert await store.look("mine") == (group, None, "")
    assert await store.look("never", jobs=True, epoch=True) == (None, None, epoch)
    await sagas.redis.delete(f"{sagas.prefix}:_jobgroups:saga:epoch")


async def test_a_group_is_made_and_read_in_one_round_trip(
    sagas: Sagas, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sagas.groups.store
    plan = owned("mine", job("charge"), job("ship"))
    await store.make(owned("before", job("charge")))  # so that Redis knows the scripts
    trips: list[list[Any]] = []

    async def counted(*arguments: Any) -> list[Any]:
        trips.append(await send(*arguments))
        return trips[-1]

    with monkeypatch.context() as patched:
        patched.setattr("jobgroup.scripts._send", counted)
        made = await store.make(plan)
    assert len(trips) == 1
    assert made == (await store.read("mine"), await store.read_jobs("mine"), "")
    assert await store.make(plan) == made  # it is there
    refused = await store.make(owned("mine", job("charge")))
    assert isinstance(refused, GroupExistsError)
    await sagas.redis.set(f"{sagas.prefix}:_jobgroups:spoilt", "a text")
    assert isinstance(await store.make(owned("spoilt", job("charge"))), SpoiltKeyError)
    await sagas.redis.delete(f"{sagas.prefix}:_jobgroups:spoilt")


@pytest.mark.parametrize("known", ["create_groups", "read_group", "read_jobs"])
async def test_a_group_is_made_and_counted_once_by_a_redis_that_knows_one_of_the_scripts(
    sagas: Sagas, known: str
) -> None:
    made: list[int] = []

    class Counting(Observer):
        def created(self, count: int) -> None:
            made.append(count)

    store = Store(sagas.redis, sagas.prefix, observer=Counting())
    await sagas.redis.script_flush()
    await sagas.redis.script_load(load(known).source)
    found = await store.make(owned("mine", job("charge"), job("ship")))
    assert found == (await store.read("mine"), await store.read_jobs("mine"), "")
    assert made == [1]


async def test_a_look_survives_jobs_that_cannot_be_read(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    active = f"{sagas.prefix}:payments:active"
    await sagas.redis.set(active, "a text")
    group = await store.read("mine")
    assert group
    assert await store.look("mine", jobs=True) == (group, None, "")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await store.read_jobs("mine")
    await sagas.redis.delete(active)


async def test_a_group_that_is_removed_between_two_calls_of_a_look_is_not_there(
    sagas: Sagas, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])

    async def removed_in_between(*arguments: Any, **options: Any) -> list[Any]:
        answers = await run_all(*arguments, **options)
        return [answers[0], None, *answers[2:]]

    monkeypatch.setattr("jobgroup.store.run_all", removed_in_between)
    assert await store.look("mine", jobs=True) == (None, None, "")


async def test_a_look_at_what_cannot_be_read_raises_why(sagas: Sagas) -> None:
    spoilt = f"{sagas.prefix}:_jobgroups:spoilt"
    await sagas.redis.set(spoilt, "a text")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await sagas.groups.store.look("spoilt", jobs=True, epoch=True)
    await sagas.redis.delete(spoilt, f"{sagas.prefix}:_jobgroups:saga:epoch")
