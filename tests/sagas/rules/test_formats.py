"""Groups with a newer format: this release refuses them and leaves them to a newer driver."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from redis.asyncio import Redis

from jobgroup import Driver, JobGroups, NewerFormatError, Store
from jobgroup.definition.plan import plan_group
from jobgroup.definition.spec import parse_group
from jobgroup.driver import BATCH
from jobgroup.model import names
from testbed.servers.stock import StockClient
from testbed.support.sagas import Sagas, delete_residue, job, knowing, reached, undo


@pytest.fixture
def older(operator_redis: Redis, prefix: str, tmp_path: Path) -> Store:
    """Return a store of scripts that know no format of today."""
    return Store(operator_redis, prefix, knowing(tmp_path / "lua", 0))


async def test_every_call_refuses_a_newer_format(sagas: Sagas, older: Store) -> None:
    order = await sagas.add(job("charge"))
    group_id, groups = order.group_id, JobGroups(older)
    with pytest.raises(
        NewerFormatError, match=rf"^Group {group_id} was created by a newer release"
    ):
        await groups.get_group_state(group_id)
    for call in (groups.get_group_jobs, groups.cancel_group, groups.remove_group, older.orphan):
        with pytest.raises(NewerFormatError):
            await call(group_id)
    with pytest.raises(NewerFormatError):
        await older.tombstone(group_id)
    plan = plan_group(parse_group("order", [job("charge")]), group_id)
    (created,) = await older.create([plan])
    assert isinstance(created, NewerFormatError)
    (settled,) = await older.settle([group_id], "DeadlineExceeded")
    assert isinstance(settled, NewerFormatError)
    state = await sagas.read(group_id)
    assert (state.state, state.revision) == ("ACTIVE", 1)


async def test_a_format_that_is_no_number_is_refused(sagas: Sagas, redis: Redis) -> None:
    order = await sagas.add(job("charge"))
    parent = names.parent_key(sagas.prefix, order.group_id)
    await redis.hset(parent, "format", "x")
    with pytest.raises(NewerFormatError):
        await sagas.read(order.group_id)
    await redis.hset(parent, "format", "1")
    assert (await sagas.read(order.group_id)).state == "ACTIVE"


async def test_an_older_driver_moves_no_group_and_disturbs_no_newer_driver(
    redis_url: str, worker_url: str, redis: Redis, prefix: str, older: Store
) -> None:
    client = await StockClient.start("bullmq6", worker_url, prefix)
    async with JobGroups.connect(redis_url, prefix) as groups:
        nodes = [
            await groups.add_group("order", [job("charge")], {"charge": undo("refund")})
            for _ in range(60)
        ]
        await client.work("payments")
        for node in nodes:
            await client.heard("completed", id=node.jobs[0].job_id)
        errors: list[str] = []
        behind = Driver(older, on_error=lambda group_id, _: errors.append(group_id))
        await behind.drain()
        assert await behind.resync() == 0
        wakeups = names.wakeups_key(prefix)
        assert await redis.llen(wakeups) == 60
        for node in nodes:
            key = f"{prefix}:payments:groups:{node.group_id}"
            assert await redis.hget(key, "state") == "ACTIVE"
        assert not errors

        # The newer driver is woken once; the older one does not take the marker again and again.
        marker = names.marker_key(prefix)
        assert await redis.zscore(marker, "0") == 0
        await redis.delete(marker)
        await behind.drain()
        assert not await redis.exists(marker)

        await Driver(groups.store).drain()
        for node in nodes:
            assert (await reached(groups.store, node.group_id, ended=True)).state == "COMPLETED"
            await groups.remove_group(node.group_id)
        await client.end()
        await delete_residue(redis, prefix)


async def test_an_older_driver_reads_many_newer_groups_more_and_more_seldom(
    redis: Redis, operator_redis: Redis, prefix: str, older: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("jobgroup.driver.time", clock)
    monkeypatch.setattr("jobgroup.driver.backoff", lambda failures: 10.0 * failures)
    store = Store(operator_redis, prefix)
    for n in range(3 * BATCH):
        plan = plan_group(parse_group("order", [job("charge")]), f"order-{n}")
        assert await store.create([plan]) == [True]
        await redis.rpush(names.wakeups_key(prefix), f"order-{n}")
    behind = Driver(older)
    entries = []
    for clock.now in (0.0, 9.0, 11.0, 29.0, 32.0):
        before = behind.counters.wakeups
        await behind.drain()
        entries.append((behind.counters.wakeups - before) // BATCH)
    assert entries == [3, 1, 3, 1, 3]
    await redis.delete(*[key async for key in redis.scan_iter(f"{prefix}:*")])
