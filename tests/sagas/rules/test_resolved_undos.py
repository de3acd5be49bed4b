"""Undos that somebody resolves are not run again, and count apart from those that completed."""

import asyncio

import pytest

from jobgroup import InvalidGroupStateError
from jobgroup.errors import InvalidJobStateError, InvalidSpecError, JobNotFoundError
from jobgroup.model import names
from testbed.servers.stock import StockClient, fails_for_good, hangs, returns
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import GROUP_EVENTS, Sagas, job, undo
from tests.sagas.rules.test_retried_undos import UNDO_QUEUE, failed

REASON = "refunded by hand, ticket 4711"


async def test_the_last_failed_undo_that_is_resolved_ends_the_group(
    sagas: Sagas, client: StockClient
) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await failed(sagas, client, refund=fails_for_good(), untip=fails_for_good())
    group = await sagas.groups.resolve_undo(order.group_id, "charge", REASON, by="ann")
    assert (group.state, group.resolved_count) == ("FAILED_COMPENSATION", 1)
    assert (group.undo_failed_count, group.undone_count) == (1, 0)
    # The first answer holds, also after the end.
    assert await sagas.groups.resolve_undo(order.group_id, "charge", "other", "bob") == group
    tip = order.jobs[1].job_id
    ended = await sagas.groups.resolve_undo(order.group_id, tip, REASON)
    assert (ended.state, ended.attempt, ended.resolved_count) == ("FAILED", 2, 2)
    assert (ended.undo_failed_count, ended.undone_count, ended.undo_count) == (0, 0, 2)
    assert await sagas.groups.resolve_undo(order.group_id, "charge", "other", "bob") == ended
    assert [(each.verb, each.by, each.job, each.reason) for each in ended.records] == [
        ("resolve", "ann", order.jobs[0].job_id, REASON),
        ("resolve", "", tip, REASON),
    ]
    jobs = await sagas.groups.get_group_jobs(order.group_id)
    assert [(each.undo, each.resolved_by, each.resolved_reason) for each in jobs] == [
        ("resolved", "ann", REASON),
        ("resolved", "", REASON),
        ("", "", ""),
    ]
    told = await sagas.told(client, "payments")
    assert [fields.get("state") for event, fields in told if event == "group:failed"] == [
        "FAILED_COMPENSATION",
        "FAILED",
    ]
    assert told[-1][1]["compensationResults"].count('"resolved"') == 2


async def test_a_resolved_undo_is_not_run_by_a_stock_retry(
    sagas: Sagas, client: StockClient
) -> None:
    order = await failed(sagas, client, refund=fails_for_good())
    ended = await sagas.groups.resolve_undo(order.group_id, "charge", REASON)
    assert (ended.state, ended.undone_count, ended.resolved_count) == ("FAILED", 1, 1)
    undo_id = names.undo_id(order.jobs[0].job_id)
    await client.manage(UNDO_QUEUE, "retry", "failed", job=undo_id)
    await client.heard("failed", id=undo_id, reason="the undo was resolved")
    await sagas.driver.resync()
    after = await sagas.read(order.group_id)
    assert (after.state, after.attempt, after.resolved_count) == ("FAILED", 2, 1)
    assert (after.undo_failed_count, after.finished_at) == (0, ended.finished_at)
    assert client.count("started", name="refund") == 1


async def test_a_waiting_undo_that_is_resolved_leaves_its_queue(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(
        job("charge"), job("tip"), job("reserve", "inventory"),
        undos={"charge": undo("refund"), "tip": undo("untip")},
    )  # fmt: skip
    await client.work("payments", {"charge": returns(1)})
    await sagas.reaches(order.group_id, completed_count=2)
    await client.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING", undo_count=2)
    group = await sagas.groups.resolve_undo(order.group_id, "charge", REASON)
    assert (group.state, group.resolved_count, group.undo_failed_count) == ("COMPENSATING", 1, 0)
    undo_key = names.job_key(sagas.prefix, UNDO_QUEUE, names.undo_id(order.jobs[0].job_id))
    assert await sagas.redis.exists(undo_key) == 0
    assert await sagas.redis.llen(f"{sagas.prefix}:{UNDO_QUEUE}:wait") == 1
    await client.work(UNDO_QUEUE)
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.attempt, ended.undone_count) == ("FAILED", 1, 1)
    assert (ended.resolved_count, ended.undo_failed_count) == (1, 0)
    assert client.count("started", name="refund") == 0


async def test_an_undo_is_resolved_and_others_are_retried(
    sagas: Sagas, stock: ClientStarter
) -> None:
    client = await stock()
    order = await failed(sagas, client, refund=fails_for_good(), untip=fails_for_good())
    await client.end()
    await sagas.groups.resolve_undo(order.group_id, "tip", REASON)
    with pytest.raises(InvalidJobStateError, match="it is resolved already"):
        await sagas.groups.retry_undos(order.group_id, ["tip"])
    await sagas.groups.retry_undos(order.group_id)
    mended = await stock()
    await mended.work(UNDO_QUEUE)
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count, ended.resolved_count) == ("FAILED", 1, 1)
    assert mended.count("started", name="untip") == 0


async def test_refused_resolutions_say_why_and_write_nothing(
    sagas: Sagas, client: StockClient
) -> None:
    groups, redis = sagas.groups, sagas.redis
    order = await sagas.add(
        job("charge"), job("tip"), job("reserve", "inventory"),
        undos={"charge": undo("refund"), "tip": undo("untip")},
    )  # fmt: skip

    async def refuses(job: str, reason: str, kind: type[Exception], sentence: str) -> None:
        await groups.store.settle([order.group_id])
        key = names.group_key(sagas.prefix, "payments", order.group_id)
        before = await redis.hgetall(key)
        with pytest.raises(kind, match=sentence):
            await groups.resolve_undo(order.group_id, job, reason)
        assert await redis.hgetall(key) == before

    await refuses("charge", REASON, InvalidGroupStateError, "an undo of group in state ACTIVE")
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=2)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work(UNDO_QUEUE, {"refund": hangs()}, concurrency=2)
    await client.heard("started", name="refund")
    await sagas.reaches(order.group_id, undone_count=1)
    await refuses("charge", REASON, InvalidJobStateError, "it is running")
    await refuses("tip", REASON, InvalidJobStateError, "it is completed already")
    await refuses("reserve", REASON, InvalidJobStateError, "it does not exist")
    await refuses("nobody", REASON, JobNotFoundError, "has no job")
    await refuses("charge", "", InvalidSpecError, "say why")
    await refuses("charge", "x" * 1_000_000, InvalidSpecError, "1000000 characters exceed")
    await client.release("refund")
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    await refuses("charge", REASON, InvalidGroupStateError, "an undo of group in state FAILED")


async def test_one_of_several_callers_resolves_an_undo(sagas: Sagas, client: StockClient) -> None:
    order = await failed(sagas, client, refund=fails_for_good())
    calls = [
        sagas.groups.resolve_undo(order.group_id, "charge", f"reason {n}", f"caller-{n}")
        for n in range(5)
    ]
    assert len({group.records for group in await asyncio.gather(*calls)}) == 1
    (charge, *_) = await sagas.groups.get_group_jobs(order.group_id)
    (record,) = (await sagas.read(order.group_id)).records
    assert (charge.resolved_by, charge.resolved_reason) == (record.by, record.reason)


async def test_resolutions_survive_the_loss_of_the_ledger(
    sagas: Sagas, client: StockClient
) -> None:
    order = await failed(sagas, client, refund=fails_for_good(), untip=fails_for_good())
    await sagas.groups.resolve_undo(order.group_id, "charge", REASON)
    parent = names.parent_key(sagas.prefix, order.group_id)
    await sagas.redis.delete(names.undo_id(parent))
    await sagas.groups.store.settle([order.group_id])
    group = await sagas.read(order.group_id)
    assert (group.state, group.resolved_count, group.undo_failed_count) == (
        "FAILED_COMPENSATION", 1, 1,
    )  # fmt: skip
