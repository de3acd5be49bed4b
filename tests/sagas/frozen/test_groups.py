"""Groups that earlier releases left in Redis: this release reads, drives and removes them.

A fixture has the raw keys of some groups, what could be read of them, and what becomes of them.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from jobgroup import Driver, GroupState, JobGroups
from jobgroup.definition.plan import plan_group
from jobgroup.definition.spec import parse_group
from jobgroup.errors import GroupExistsError, GroupNotFoundError
from jobgroup.model import names
from jobgroup.model.snapshot import Settled
from testbed.servers.redis_kinds import master_of
from testbed.servers.stock import FLAVOURS, StockClient
from testbed.support.fixtures import QueueNamer
from testbed.support.raw_keys import dump, restore, without_ttl
from testbed.support.sagas import Sagas, delete_residue, job, peek, reached, stage
from testbed.support.waiting import eventually
from tests.sagas.frozen.freeze import HERE, PREFIX, read

FILES = sorted(HERE.glob("format-*/*.json"))
LOCK = ":lock"
DEFAULTS = {
    names.field_name(field.name): field.default
    for field in fields(GroupState)
    if field.default is not MISSING
} | {"records": []}
# The queue of children of members. Removing a group does not remove them.
CHILDREN = "banks"


def thaw(path: Path, prefix: str = PREFIX) -> dict[str, Any]:
    """Return a fixture with the prefix of a test."""
    found: dict[str, Any] = json.loads(path.read_text().replace(f"{PREFIX}:", f"{prefix}:"))
    return found


def ids(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def drives() -> Iterator[Any]:
    """Return each fixture with the clients that continue; one suffices if nothing is to run."""
    for path in FILES:
        for flavour in FLAVOURS if thaw(path)["runs"] else ["bullmq6"]:
            yield pytest.param(path, flavour, id=f"{ids(path)}-{flavour}")


@pytest.fixture
def emptied(redis_url: str, prefix: str) -> Iterator[None]:
    """Delete all keys of the test afterwards."""
    yield
    with Redis.from_url(master_of(redis_url, prefix), decode_responses=True) as redis:
        for key in redis.scan_iter(f"{prefix}:*", count=1000):
            redis.delete(key)


@pytest.mark.usefixtures("emptied")
@pytest.mark.parametrize("path", FILES, ids=ids)
async def test_a_group_is_read_and_recognized(path: Path, redis_url: str, prefix: str) -> None:
    frozen = thaw(path, prefix)
    async with JobGroups.connect(redis_url, prefix) as groups:
        store = groups.store
        await restore(store.redis, frozen["keys"])
        for group_id, group in frozen["groups"].items():
            found = await read(groups, group_id)
            # A field of a later release has its default value.
            state = group["state"] and DEFAULTS | group["state"]
            assert (found["state"], found["jobs"]) == (state, group["jobs"])
            assert found.get("derived") == group.get("derived")
        for state, listed in frozen["listed"].items():
            assert await store.listing.ids(state) == listed
        for group_id, group in frozen["groups"].items():
            definition = parse_group(**group["definition"])
            how = {name: group[name] for name in ("owner", "resource", "is_id_generated")}
            (created,) = await store.create([plan_group(definition, group_id, **how)])
            assert getattr(created, "code", created) == group.get("again", False)
            other = definition.model_copy(update={"name": "another"})
            (created,) = await store.create([plan_group(other, group_id)])
            assert getattr(created, "code", "") == group.get("again", GroupExistsError.code)
        assert without_ttl(await dump(store.redis, prefix)) == without_ttl(frozen["keys"])


async def finish_active_jobs(client: StockClient, frozen: dict[str, Any], prefix: str) -> None:
    """Complete the active jobs, as their workers do."""
    keys = frozen["keys"]
    for lock in [key for key in keys if key.endswith(LOCK)]:
        key = lock.removesuffix(LOCK)
        queue, _, job_id = key.removeprefix(f"{prefix}:").rpartition(":")
        name, token = keys[key]["value"]["name"], keys[lock]["value"]
        value = frozen["behaviour"].get(name, {}).get("return")
        await client.manage(queue, "moveToCompleted", value, token, False, job=job_id)


async def ends(sagas: Sagas, group_id: str, end: dict[str, Any] | None) -> GroupState | None:
    """Wait until a group has ended as it must, or is gone."""

    async def is_there_or_gone() -> bool:
        found = await peek(sagas.groups.store, group_id)
        # A group that lacks keys is not found until a driver restores it.
        return (found is None) == (end is None)

    await eventually(is_there_or_gone)
    if end is None:
        return None
    kinds = ("completed", "failed", "cancelled", "undo_failed")
    counts = {f"{kind}_count": end.get(kind, 0) for kind in kinds}
    return await reached(
        sagas.groups.store,
        group_id,
        state=end["state"],
        **counts,
        undone_count=end.get("undone", 0),
    )


@pytest.mark.parametrize(("path", "flavour"), list(drives()))
async def test_a_group_is_driven_to_its_end_and_removed(
    path: Path, flavour: str, redis_url: str, prefix: str, queue: QueueNamer
) -> None:
    frozen = thaw(path, prefix)
    for each in (*frozen["queues"], CHILDREN):
        queue(each)
    async with (
        JobGroups.connect(redis_url, prefix) as groups,
        await StockClient.start(flavour, redis_url, prefix) as client,
    ):
        redis = groups.store.redis
        await restore(redis, frozen["keys"])
        async with stage(redis_url, prefix) as sagas:
            sagas.drive(resync_seconds=0.2)
            await finish_active_jobs(client, frozen, prefix)
            for each in frozen["queues"]:
                if await redis.hexists(f"{prefix}:{each}:meta", "paused"):
                    await client.manage(each, "resume")
                await client.work(each, frozen["behaviour"])
            for group_id, group in frozen["groups"].items():
                if state := await ends(sagas, group_id, group["end"]):
                    await check_jobs(sagas, group, state)
            assert Counter(
                report["name"] for report in client.reports if report["event"] == "started"
            ) == Counter(frozen["runs"])
            await remove(sagas, frozen)


async def check_jobs(sagas: Sagas, group: dict[str, Any], state: GroupState) -> None:
    """Check the jobs and the undos of a group that has ended."""
    jobs = await sagas.groups.get_group_jobs(state.id)
    if len(jobs) == state.total_jobs:  # else it is half removed
        statuses = Counter(job.status for job in jobs)
        counts = (state.completed_count, state.failed_count, state.cancelled_count)
        assert tuple(statuses[s] for s in ("completed", "failed", "cancelled")) == counts
        undos = Counter(job.undo for job in jobs)
        assert (undos["completed"], undos["failed"]) == (
            state.undone_count,
            state.undo_failed_count,
        )
    if (kept := group.get("kept")) is not None:

        async def are_kept() -> bool:
            exist = [await sagas.redis.exists(job.job_key) for job in jobs]
            return bool([n for n, found in enumerate(exist) if found] == kept)

        await eventually(are_kept)
    for key, values in group.get("undos", {}).items():
        assert await sagas.redis.hmget(key, list(values)) == list(values.values())


async def remove(sagas: Sagas, frozen: dict[str, Any]) -> None:
    """Remove the groups; check that nothing is left of them."""
    for group_id, group in frozen["groups"].items():
        if group["end"] is None:
            with pytest.raises(GroupNotFoundError):
                await sagas.groups.remove_group(group_id)
        else:
            await sagas.groups.remove_group(group_id)
        assert await peek(sagas.groups.store, group_id) is None
        assert await sagas.redis.exists(names.tombstone_key(sagas.prefix, group_id))
    await sagas.stop()
    await delete_residue(sagas.redis, sagas.prefix)
    await sagas.redis.delete(names.incarnation_key(sagas.prefix))
    left = await sagas.keys()
    assert [key for key in left if not key.startswith(f"{CHILDREN}:")] == []


@pytest.mark.usefixtures("emptied")
@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_an_ended_group_does_not_change(flavour: str, redis_url: str, prefix: str) -> None:
    frozen = thaw(HERE / f"format-1/ended-{flavour}.json", prefix)
    async with JobGroups.connect(redis_url, prefix) as groups:
        await restore(groups.store.redis, frozen["keys"])
        for settled in await groups.store.settle(list(frozen["groups"])):
            assert isinstance(settled, Settled)
            assert (settled.changed, settled.more) == (False, False)
        driver = Driver(groups.store)
        assert await driver.resync() == 0
        assert driver.counters.settles == 0


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_the_retention_of_a_new_group_removes_members_of_ended_groups(
    flavour: str, redis_url: str, prefix: str, queue: QueueNamer
) -> None:
    frozen = thaw(HERE / f"format-1/ended-{flavour}.json", prefix)
    for each in frozen["queues"]:
        queue(each)
    async with (
        await StockClient.start(flavour, redis_url, prefix) as client,
        stage(redis_url, prefix) as sagas,
    ):
        await restore(sagas.redis, frozen["keys"])
        new = await sagas.add(job("charge", removeOnComplete=1))
        await client.work("payments")
        await sagas.ends(new.group_id)
        completed = f"{prefix}:payments:completed"

        async def only_the_newest_is_left() -> bool:
            return await sagas.redis.zrange(completed, 0, -1) == [new.jobs[0].job_id]

        await eventually(only_the_newest_is_left)
