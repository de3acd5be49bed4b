"""What single calls of stock clients, and jobs of others, do to members and undos."""

from pathlib import Path

import pytest
from redis.asyncio import Redis

from jobgroup import JobGroups, NewerFormatError
from jobgroup.model import names
from testbed.servers.redis import RedisServer
from testbed.servers.stock import (
    StockClient,
    fails,
    fails_for_good,
    hangs,
    returns,
    waits_for_child,
)
from testbed.support.fixtures import ClientStarter, QueueNamer
from testbed.support.sagas import Sagas, job, undo

REFUND = {"charge": undo("refund", attempts=1)}


async def test_a_completed_member_of_a_failed_group_never_runs_again(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=REFUND)
    await client.work("payments", {"charge": returns("tx-1")})
    await client.heard("completed", name="charge")
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work("payments:compensation")
    await sagas.ends(order.group_id)
    charge = order.jobs[0]
    await client.manage("payments", "retry", "completed", job=charge.job_id)
    await client.heard("failed", id=charge.job_id, reason=f"group {order.group_id} was given up")
    # Its failure wakes nobody, so nothing is left that could be retried.
    assert await sagas.redis.exists(charge.job_key) == 0
    assert client.count("started", name="charge") == client.count("started", name="refund") == 1


@pytest.mark.parametrize("active", [False, True], ids=["waiting", "active"])
async def test_a_member_that_was_removed_from_its_parent_stays_a_member(
    sagas: Sagas, start_client: ClientStarter, active: bool
) -> None:
    client = await start_client("bullmq6")
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=REFUND)
    if active:
        await client.work("payments", {"charge": hangs(returns("tx-1"))})
        await client.heard("started", name="charge")
    await client.manage("payments", "removeChildDependency", job=order.jobs[0].job_id)
    await sagas.driver.resync()
    assert (await sagas.read(order.group_id)).state == "ACTIVE"
    await client.release("charge")
    await client.work("payments")
    await client.heard("completed", name="charge")
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work("payments:compensation")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.completed_count, ended.undone_count) == ("FAILED", 1, 1)


async def test_members_that_only_failed_by_their_doom_are_not_undone(
    sagas: Sagas, client: StockClient
) -> None:
    undos = {"charge": undo("refund", when="Started")}
    order = await sagas.add(
        *(job("charge") for _ in range(250)), job("reserve", "inventory"), undos=undos
    )
    # One call drops 200 members; the workers take the others before the next call.
    await sagas.groups.store.settle([order.group_id], "DeadlineExceeded")
    await client.work("payments", concurrency=50)
    await client.work("payments:compensation")
    ended = await sagas.ends(order.group_id)
    assert client.count("started", name="charge") == 0
    assert (ended.state, ended.undo_count) == ("FAILED", 0)


async def test_a_job_that_replaces_a_member_is_left_alone(
    sagas: Sagas, start_client: ClientStarter, queue: QueueNamer
) -> None:
    client = await start_client("bullmq6")
    order = await sagas.add(
        job("charge", queue("payments")), job("reserve", "inventory"), undos=REFUND
    )
    charge = order.jobs[0]
    await client.manage("payments", "remove", job=charge.job_id)
    await client.add("payments", "of a person", jobId=charge.job_id)
    await sagas.driver.resync()
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undo_count, ended.failed_count) == ("FAILED", 0, 1)
    await client.work("payments")
    await client.heard("completed", name="of a person")


@pytest.mark.parametrize("completes", [True, False], ids=["completed", "started"])
@pytest.mark.parametrize("removes_again", [False, True], ids=["there", "removed"])
async def test_a_member_that_ran_and_was_replaced_is_undone(
    sagas: Sagas, client: StockClient, completes: bool, removes_again: bool
) -> None:
    undos = {"charge": undo("refund", when="Started")}
    order = await sagas.add(
        job("charge", attempts=2, backoff=3_600_000), job("reserve", "inventory"), undos=undos
    )
    charge = order.jobs[0]
    await sagas.stop()
    await client.work("payments", {"charge": returns("tx-1") if completes else fails(1)})
    await client.heard("completed" if completes else "failed", name="charge")
    await client.manage("payments", "pause")
    if completes:
        await client.manage("payments", "retry", "completed", job=charge.job_id)
    await client.manage("payments", "remove", job=charge.job_id)
    await client.add("payments", "of a person", jobId=charge.job_id)
    if removes_again:
        await client.manage("payments", "remove", job=charge.job_id)
    sagas.drive(resync_seconds=0.05)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work("payments:compensation")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 1)
    refund = (await client.heard("started", name="refund"))["data"]
    assert refund["originalReturnValue"] == ("tx-1" if completes else None)
    if not removes_again:
        await sagas.groups.remove_group(order.group_id)
        await client.manage("payments", "resume")
        await client.heard("completed", name="of a person")
        await client.manage("payments", "remove", job=charge.job_id)


@pytest.mark.parametrize("flavour", ["bullmq5", "bullmq6"])
async def test_a_member_that_waits_for_a_child_does_not_hold_up_its_group(
    sagas: Sagas, start_client: ClientStarter, queue: QueueNamer, flavour: str
) -> None:
    client = await start_client(flavour)
    undos = {"charge": undo("refund", when="Started")}
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=undos)
    await client.work("payments", {"charge": waits_for_child(queue("banks"))})
    await client.heard("waits", name="charge")
    await sagas.groups.cancel_group(order.group_id)
    await client.work("payments:compensation")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.cancelled_count, ended.undone_count) == ("FAILED", 2, 1)
    # The member returns to its queue after its child. It fails there without a second run.
    await client.work("banks")
    await client.heard("failed", name="charge", reason=f"group {order.group_id} was given up")
    assert client.count("started", name="charge") == 1
    assert await sagas.redis.exists(order.jobs[0].job_key) == 0


@pytest.mark.parametrize("filled", [("paused",), ("wait", "paused")], ids=["one list", "both"])
async def test_no_call_spins_if_both_lists_are_long(
    sagas: Sagas, redis: Redis, prefix: str, filled: tuple[str, ...]
) -> None:
    order = await sagas.add(job("charge"))
    payments = f"{prefix}:payments"
    await redis.rename(f"{payments}:wait", f"{payments}:paused")
    pipeline = redis.pipeline()
    for name in filled:
        for _ in range(200):
            pipeline.lpush(f"{payments}:{name}", *(f"filler-{n}" for n in range(1000)))
    await pipeline.execute()
    settles = sagas.driver.counters.settles
    await sagas.groups.cancel_group(order.group_id)
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    await sagas.groups.remove_group(order.group_id)
    assert sagas.driver.counters.settles - settles < 10
    await redis.delete(f"{payments}:wait", f"{payments}:paused", order.jobs[0].job_key)


async def test_an_undo_that_its_queue_lost_fails_the_compensation(
    sagas: Sagas, start_client: ClientStarter, queue: QueueNamer
) -> None:
    newer, older = await start_client("bullmq6"), await start_client("bullmq5")
    undos = queue("payments:compensation")
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=REFUND)
    await newer.work("payments")
    await newer.heard("completed", name="charge")
    await newer.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING", undo_count=1)
    await newer.manage(undos, "pause")
    await older.add(undos, "foreign")  # goes to the list `paused`
    await older.manage(undos, "resume")  # replaces the list `wait` with it
    await sagas.driver.resync()
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undo_failed_count) == ("FAILED_COMPENSATION", 1)


async def test_undos_whose_parent_was_deleted_are_counted(
    sagas: Sagas, redis: Redis, prefix: str, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=REFUND)
    await client.work("payments")
    await client.heard("completed", name="charge")
    await client.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING", undo_count=1)
    parent = names.parent_key(prefix, f"{order.group_id}-undo")
    await redis.delete(parent, f"{parent}:dependencies")
    await sagas.driver.resync()
    assert (await sagas.read(order.group_id)).state == "COMPENSATING"
    await client.work("payments:compensation", {"refund": fails_for_good()})
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undo_failed_count) == ("FAILED_COMPENSATION", 1)


async def test_undos_whose_parent_was_deleted_are_counted_beside_a_later_one(
    sagas: Sagas, redis: Redis, prefix: str, start_client: ClientStarter
) -> None:
    client = await start_client("bullmq6")
    members = [job("charge"), job("reserve", "inventory"), job("ship", "shipping")]
    order = await sagas.add(*members, undos={**REFUND, "ship": undo("recall")})
    await client.work("payments")
    await client.heard("completed", name="charge")
    await client.work("shipping", {"ship": hangs(returns("tx-1"))})
    await client.heard("started", name="ship")
    await client.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING", undo_count=1)
    parent = names.parent_key(prefix, f"{order.group_id}-undo")
    await redis.delete(parent, f"{parent}:dependencies")
    await client.release("ship")
    await sagas.reaches(order.group_id, state="COMPENSATING", undo_count=2)
    await client.work("payments:compensation")
    await client.work("shipping:compensation")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 2)


async def test_a_job_with_the_id_of_a_list_blocks_no_group(
    sagas: Sagas, redis: Redis, prefix: str
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    await redis.hset(f"{prefix}:payments:paused", "name", "of another")
    await sagas.driver.resync()
    await sagas.groups.cancel_group(order.group_id)
    assert (await sagas.ends(order.group_id)).cancelled_count == 2
    await redis.delete(f"{prefix}:payments:paused")


@pytest.mark.parametrize("key", ["wait", "meta"])
async def test_a_queue_with_a_key_of_another_type_does_not_stop_the_review(
    sagas: Sagas, redis: Redis, prefix: str, key: str
) -> None:
    await sagas.stop()  # its first review may move the job back to the list
    await sagas.add(job("charge"))
    payments = f"{prefix}:payments"
    await redis.rename(f"{payments}:wait", f"{payments}:paused")
    await redis.set(f"{payments}:{key}", "no list and no hash")
    order = await sagas.add(job("reserve", "inventory"))
    await redis.delete(order.jobs[0].job_key, f"{prefix}:inventory:wait")
    assert await sagas.driver.resync() == 1
    assert (await sagas.read(order.group_id)).state == "FAILED"
    await redis.delete(f"{payments}:{key}")


async def test_an_event_without_a_job_does_not_stop_the_hints(sagas: Sagas, redis: Redis) -> None:
    await sagas.add(job("charge"))
    events = f"{sagas.prefix}:payments:events"
    for fields in ({"event": "removed"}, {"event": "cleaned", "count": "0"}):
        last = await redis.xadd(events, fields)  # type: ignore[arg-type]
    hints = await sagas.groups.store.reviews.hints({"payments": "0-0"})
    assert hints["payments"].last == last
    assert hints["payments"].groups == []


async def test_a_newer_group_without_its_parent_is_not_restored(
    sagas: Sagas, redis: Redis, prefix: str
) -> None:
    await sagas.stop()
    order = await sagas.add(job("charge"))
    key, parent = (
        f"{prefix}:payments:groups:{order.group_id}",
        names.parent_key(prefix, order.group_id),
    )
    await redis.hset(key, "format", "99")
    await redis.rename(parent, f"{prefix}:aside")
    (result,) = await sagas.groups.store.settle([order.group_id], queue="payments")
    assert isinstance(result, NewerFormatError)
    assert await redis.exists(parent) == 0
    await redis.rename(f"{prefix}:aside", parent)
    await redis.hdel(key, "format")


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "run again"])
async def test_a_full_redis_reports_no_end_while_members_are_to_be_traced(
    tmp_path: Path, removed: bool
) -> None:
    undos = {"charge": undo("refund", when="Started" if removed else "Completed")}
    with RedisServer(tmp_path) as server:
        async with JobGroups.connect(server.url) as groups:
            client = await StockClient.start("bullmq6", server.url, "bull")
            charge = job("charge", attempts=2, backoff=3_600_000)
            order = await groups.add_group("order", [charge], undos)
            (member,) = order.jobs
            await client.work("payments", {"charge": fails(1) if removed else returns("tx-1")})
            if removed:
                await client.heard("failed", name="charge")
                await client.manage("payments", "remove", job=member.job_id)
            else:
                await client.heard("completed", name="charge")
                await client.work("unused", {"charge": fails_for_good()})
                await client.manage("payments", "retry", "completed", job=member.job_id)
                await client.heard("failed", name="charge")
            await groups.store.redis.config_set("maxmemory", 1)
            state = await groups.get_group_state(order.group_id)
            assert state is not None
            assert state.state == "COMPENSATING"
            await client.end()


async def test_a_full_redis_reports_no_end_while_undos_are_due(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        async with JobGroups.connect(server.url) as groups:
            client = await StockClient.start("bullmq6", server.url, "bull")
            order = await groups.add_group(
                "order", [job("charge")], {"charge": undo("refund", when="Started")}
            )
            await client.work("payments", {"charge": fails_for_good()})
            await client.heard("failed", name="charge")
            await groups.store.redis.config_set("maxmemory", 1)
            read = await groups.get_group_state(order.group_id)
            reading = await groups.store.read_with(order.group_id)
            for state in (read, reading.group):
                assert state is not None
                assert state.state == "COMPENSATING"
            await client.end()
