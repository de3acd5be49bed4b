"""Owners of groups: published changes, checkpoints, orphaning and tombstones."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup import (
    CorruptKeyError,
    Driver,
    GroupExistsError,
    GroupRemovedError,
    JobGroupError,
    Store,
)
from jobgroup.definition.plan import Plan, plan_group
from jobgroup.definition.spec import parse_group
from jobgroup.model import names
from jobgroup.model.snapshot import OwnedGroup
from jobgroup.store.observer import Observer
from jobgroup.store.reviews import Cursor
from jobgroup.store.scripts import Call, load, run_all
from jobgroup.store.scripts import _send as send
from jobgroup.store.streams import START
from testbed.servers.stock import StockClient, fails, fails_for_good, returns
from testbed.support.sagas import Sagas, job, undo
from testbed.support.waiting import eventually

StartClient = Callable[[str], Awaitable[StockClient]]


async def changes(sagas: Sagas, owner: str = "cluster-1") -> list[str]:
    """Return the groups in an owner's stream, in order."""
    return [group_id for _, group_id in await sagas.groups.store.streams.changes(owner, START, 0)]


def owned(group_id: str, *jobs: dict[str, object], owner: str = "cluster-1") -> Plan:
    undos = {"charge": undo("refund")}
    return plan_group(parse_group("order", jobs, undos), group_id, owner, f"shop/{group_id}")


class Counts(Observer):
    """Counts the groups that were released, and those of them that were removed."""

    def __init__(self) -> None:
        self.released = self.removed = 0

    def group_released(self) -> None:
        self.released += 1

    def released_group_removed(self) -> None:
        self.removed += 1


async def test_every_change_is_published_to_the_owner_only(
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


async def test_a_change_wakes_a_waiting_reader(sagas: Sagas) -> None:
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
    """Return whether a client is blocked on a stream."""
    clients = await sagas.redis.client_list()
    return any(each["cmd"] == "xread" for each in clients)


async def test_the_stream_of_an_owner_is_trimmed(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    stream = names.owner_changes_key(sagas.prefix, "cluster-1")
    pipeline = sagas.redis.pipeline(transaction=False)
    for _ in range(15_000):
        pipeline.xadd(stream, {"group": "another"})
    await pipeline.execute()
    await sagas.groups.cancel_group("mine")
    # Redis trims a stream in blocks of a hundred entries, so slightly more than the limit are left.
    assert 10_000 <= await sagas.redis.xlen(stream) < 10_100


async def test_each_reader_has_its_own_checkpoint(sagas: Sagas) -> None:
    store = sagas.groups.store
    assert await store.streams.read_checkpoint("cluster-1", "shop/operator") == START
    await store.streams.save_checkpoint("cluster-1", "shop/operator", "5-1")
    assert await store.streams.read_checkpoint("cluster-1", "shop/operator") == "5-1"
    assert await store.streams.read_checkpoint("cluster-1", "bank/operator") == START
    assert await store.streams.read_checkpoint("cluster-2", "shop/operator") == START


async def test_an_owner_finds_the_resources_and_sizes_of_its_own_groups_only(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned(name, job("charge")) for name in ("a", "let-go")])
    await store.create([owned("b", job("charge"), job("book"))])
    await store.create([owned("other", job("charge"), owner="cluster-2")])
    await sagas.groups.add_group("order", [job("charge")], group_id="headless")
    await store.orphan("let-go")
    corrupt = names.parent_key(sagas.prefix, "corrupt")
    await sagas.redis.set(corrupt, "a text")
    group_ids = ["a", "none", "corrupt", "let-go", "other", "headless", "b"]
    assert await store.owned("cluster-1", group_ids) == {
        "a": OwnedGroup("shop/a", 1),
        "b": OwnedGroup("shop/b", 2),
    }
    await sagas.redis.delete(corrupt)


async def test_an_orphaned_group_is_settled_to_its_end_and_not_published(
    sagas: Sagas, start_client: StartClient
) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    assert await store.orphan("mine") is True
    client = await start_client("bullmq6")
    await client.work("payments")
    ended = await sagas.ends("mine")
    assert (ended.state, ended.owner) == ("COMPLETED", "headless")
    assert await changes(sagas) == []


async def test_orphaning_a_missing_group_prevents_its_creation(sagas: Sagas) -> None:
    store = sagas.groups.store
    assert await store.orphan("never") is False
    (answer,) = await store.create([owned("never", job("charge"))])
    assert isinstance(answer, JobGroupError)
    assert isinstance(answer, GroupRemovedError)
    assert await store.read("never") is None


async def released(sagas: Sagas, group_id: str, client: StockClient, reason: str) -> None:
    """Create a group, release it, and let it fail after one job completed."""
    store = sagas.groups.store
    await store.create([owned(group_id, job("charge"), job("ship", "shipping"))])
    assert await store.orphan(group_id, release=True) is True
    await client.work("payments")
    await client.work("shipping", {"ship": fails_for_good(reason)})
    await sagas.reaches(group_id, state="COMPENSATING")


async def test_a_released_group_is_removed_after_its_undos_by_any_driver(
    sagas: Sagas, start_client: StartClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jobgroup.resync")
    client = await start_client("bullmq6")
    await released(sagas, "mine", client, "no carrier")
    await sagas.driver.resync()
    assert (await sagas.read("mine")).resource == "shop/mine"
    await client.work("payments:compensation")
    await sagas.ends("mine")
    counts = Counts()
    # Another driver than the one that settled it: that one may be gone.
    successor = Driver(Store(sagas.groups.store.redis, sagas.prefix, observer=counts))
    await successor.resync()
    assert await sagas.groups.store.read("mine") is None
    assert counts.removed == 1
    assert "group mine of shop/mine: removed" in caplog.text
    assert await sagas.keys("_jobgroups:saga:released") == []
    assert await sagas.keys("payments:mine*") == []


async def test_a_released_group_whose_compensation_failed_is_kept(
    sagas: Sagas, start_client: StartClient
) -> None:
    client = await start_client("bullmq6")
    await released(sagas, "mine", client, "no carrier")
    await client.work("payments:compensation", {"refund": fails_for_good("account closed")})
    await sagas.reaches("mine", state="FAILED_COMPENSATION")
    await sagas.driver.resync()
    found = await sagas.read("mine")
    assert (found.owner, found.resource) == ("headless", "shop/mine")
    await sagas.groups.remove_group("mine")
    assert await sagas.keys("_jobgroups:saga:released") == []


async def test_a_group_is_counted_once_however_often_it_is_released(sagas: Sagas) -> None:
    counts = Counts()
    store = Store(sagas.groups.store.redis, sagas.prefix, observer=counts)
    await store.create([owned("mine", job("charge"))])
    for _ in range(2):
        assert await store.orphan("mine", release=True) is True
    assert await store.orphan("never", release=True) is False
    assert counts.released == 1


async def test_a_released_group_without_its_pseudo_parent_is_remembered(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    await store.orphan("mine", release=True)
    await sagas.redis.delete(names.parent_key(sagas.prefix, "mine"))
    assert (await store.reviews.released(Cursor())).ended == {}
    assert await sagas.redis.zcard(names.released_key(sagas.prefix)) == 1
    await sagas.driver.resync()  # restores the parent
    assert (await sagas.read("mine")).resource == "shop/mine"


async def test_a_released_group_of_which_nothing_is_left_is_forgotten(sagas: Sagas) -> None:
    released_groups = names.released_key(sagas.prefix)
    await sagas.redis.zadd(released_groups, {"gone": 1})
    assert (await sagas.groups.store.reviews.released(Cursor())).ended == {}
    assert await sagas.redis.exists(released_groups) == 0


async def test_a_group_that_another_driver_removed_is_not_counted(sagas: Sagas) -> None:
    await sagas.stop()
    counts = Counts()
    store = Store(sagas.groups.store.redis, sagas.prefix, observer=counts)
    await store.create([owned("mine", job("charge"))])
    await store.orphan("mine", release=True)
    await store.cancel("mine")
    assert await store.remove_released("mine") is True
    assert await store.remove_released("mine") is False
    assert counts.removed == 1


async def test_a_tombstone_prevents_creation_and_keeps_an_existing_group(
    sagas: Sagas,
) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    before = await store.read("mine")
    assert await store.tombstone("mine") is True
    assert await store.read("mine") == before
    assert await store.create([owned("mine", job("charge"))]) == [False]

    assert await store.tombstone("never") is False
    (answer,) = await store.create([owned("never", job("charge"))])
    assert isinstance(answer, GroupRemovedError)
    assert await store.read("never") is None


async def test_an_owner_does_not_find_a_removed_group(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    await sagas.groups.cancel_group("mine")
    await sagas.groups.remove_group("mine")
    assert await changes(sagas) == ["mine"]
    assert await store.owned("cluster-1", ["mine"]) == {}


async def test_reading_many_groups_skips_unreadable_ones(
    sagas: Sagas,
) -> None:
    store = sagas.groups.store
    await store.create([owned(name, job("charge")) for name in ("a", "b")])
    corrupt = f"{sagas.prefix}:_jobgroups:corrupt"
    await sagas.redis.set(corrupt, "a text")
    found = await store.read_many(["a", "none", "corrupt", "b"])
    assert [group.id for group in found] == ["a", "b"]
    await sagas.redis.delete(corrupt)


async def test_the_incarnation_changes_when_redis_loses_its_data(sagas: Sagas) -> None:
    store = sagas.groups.store
    first = await store.incarnation()
    assert await store.incarnation() == first
    await sagas.redis.delete(f"{sagas.prefix}:_jobgroups:saga:epoch")
    assert await store.incarnation() != first
    await sagas.redis.delete(f"{sagas.prefix}:_jobgroups:saga:epoch")


async def test_a_group_is_read_with_its_jobs_and_the_incarnation(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"), job("ship"))])
    incarnation = await store.incarnation()
    await sagas.redis.script_flush()
    group = await store.read("mine")  # so that Redis has one of the scripts, but not the others
    found = await store.read_with("mine", jobs=True, incarnation=True)
    jobs = await store.read_jobs("mine")
    assert found == (group, jobs, incarnation)
    assert await store.read_with("mine") == (group, None, "")
    assert await store.read_with("never", jobs=True, incarnation=True) == (None, None, incarnation)
    await sagas.redis.delete(f"{sagas.prefix}:_jobgroups:saga:epoch")


async def test_a_group_is_created_and_read_in_one_round_trip(
    sagas: Sagas, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sagas.groups.store
    plan = owned("mine", job("charge"), job("ship"))
    await store.create_and_read(owned("before", job("charge")))  # so that Redis has the scripts
    trips: list[set[str]] = []

    async def counted(redis: Redis, calls: Sequence[Call]) -> list[Any]:
        scripts = {script.name for script, _ in calls}
        if scripts & {"create_groups", "read_group", "read_jobs"}:  # not those of the driver
            trips.append(scripts)
        return await send(redis, calls)

    with monkeypatch.context() as patched:
        patched.setattr("jobgroup.store.scripts._send", counted)
        made = await store.create_and_read(plan)
    assert trips == [{"create_groups", "read_group", "read_jobs"}]
    assert made == (await store.read("mine"), await store.read_jobs("mine"), "")
    assert await store.create_and_read(plan) == made  # the group already exists
    refused = await store.create_and_read(owned("mine", job("charge")))
    assert isinstance(refused, GroupExistsError)
    await sagas.redis.set(f"{sagas.prefix}:_jobgroups:corrupt", "a text")
    assert isinstance(await store.create_and_read(owned("corrupt", job("charge"))), CorruptKeyError)
    await sagas.redis.delete(f"{sagas.prefix}:_jobgroups:corrupt")


@pytest.mark.parametrize("known", ["create_groups", "read_group", "read_jobs"])
async def test_a_group_is_created_once_if_redis_has_only_some_scripts(
    sagas: Sagas, known: str
) -> None:
    made: list[int] = []

    class Counting(Observer):
        def groups_created(self, count: int) -> None:
            made.append(count)

    store = Store(sagas.groups.store.redis, sagas.prefix, observer=Counting())
    await sagas.redis.script_flush()
    await sagas.redis.script_load(load(known).source)
    found = await store.create_and_read(owned("mine", job("charge"), job("ship")))
    assert found == (await store.read("mine"), await store.read_jobs("mine"), "")
    assert made == [1]


async def test_unreadable_jobs_are_skipped_when_reading_a_group(sagas: Sagas) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])
    active = f"{sagas.prefix}:payments:active"
    await sagas.redis.set(active, "a text")
    group = await store.read("mine")
    assert group
    assert await store.read_with("mine", jobs=True) == (group, None, "")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await store.read_jobs("mine")
    await sagas.redis.delete(active)


async def test_a_group_removed_between_two_calls_is_not_found(
    sagas: Sagas, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sagas.groups.store
    await store.create([owned("mine", job("charge"))])

    async def removed_in_between(*arguments: Any, **options: Any) -> list[Any]:
        replies = await run_all(*arguments, **options)
        return [replies[0], None, *replies[2:]] if len(replies) > 1 else replies

    # Only for this call: the driver of the stage uses run_all, too.
    with monkeypatch.context() as patched:
        patched.setattr("jobgroup.store.store.run_all", removed_in_between)
        assert await store.read_with("mine", jobs=True) == (None, None, "")


async def test_reading_a_corrupt_group_raises_the_reason(sagas: Sagas) -> None:
    corrupt = f"{sagas.prefix}:_jobgroups:corrupt"
    await sagas.redis.set(corrupt, "a text")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await sagas.groups.store.read_with("corrupt", jobs=True, incarnation=True)
    await sagas.redis.delete(corrupt, f"{sagas.prefix}:_jobgroups:saga:epoch")
