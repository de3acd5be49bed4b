"""Failed undos that somebody retries by request run again, and their group ends again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from jobgroup import GroupNode, InvalidGroupStateError
from jobgroup.errors import InvalidJobStateError, InvalidSpecError, JobNotFoundError
from jobgroup.model import names
from testbed.servers.stock import Behaviour, StockClient, fails, fails_for_good, returns
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import GROUP_EVENTS, Sagas, job, undo

JOBS = (job("charge"), job("tip"), job("reserve", "inventory"))
SOON = {"type": "fixed", "delay": 1}
UNDOS = {"charge": undo("refund", attempts=2, backoff=SOON), "tip": undo("untip", attempts=1)}
UNDO_QUEUE = "payments:compensation"


async def failed(sagas: Sagas, client: StockClient, **undos: Behaviour) -> GroupNode:
    """Return a group of which undos have failed, according to their behaviours."""
    order = await sagas.add(*JOBS, undos=UNDOS)
    await client.work("payments", {"charge": returns({"tx": 1})})
    await sagas.reaches(order.group_id, completed_count=2)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work(UNDO_QUEUE, undos)
    state = await sagas.ends(order.group_id)
    assert (state.state, state.attempt, state.retries) == ("FAILED_COMPENSATION", 1, 0)
    return order


async def test_a_retry_runs_the_failed_undos_again_with_all_their_attempts(
    sagas: Sagas, stock: ClientStarter
) -> None:
    client = await stock()
    await client.listen("payments", *GROUP_EVENTS)
    order = await failed(sagas, client, refund=fails_for_good())
    before = await client.heard("started", name="refund")
    await client.end()
    first = await sagas.read(order.group_id)
    group = await sagas.groups.retry_undos(order.group_id, by="ann")
    assert (group.state, group.undo_failed_count, group.undone_count) == ("COMPENSATING", 0, 1)
    assert (group.failed_at, group.finished_at) == (first.failed_at, None)
    assert group.compensating_at is not None
    assert group.compensating_at >= (first.finished_at or 0)
    parked, ledger = names.parked_key(sagas.prefix), order.group_id
    assert await sagas.redis.zscore(parked, ledger) == 1e14 + group.compensating_at

    mended = await stock()
    await mended.listen("payments", *GROUP_EVENTS)
    # The first attempt fails: a retry without fresh attempts would not have a second one.
    await mended.work(UNDO_QUEUE, {"refund": fails(1)})
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.attempt, ended.retries) == ("FAILED", 2, 1)
    assert (ended.undone_count, ended.undo_failed_count) == (2, 0)
    assert ended.finished_at is not None
    assert ended.finished_at >= group.compensating_at
    assert [(each.verb, each.by, each.job) for each in ended.records] == [("retryUndos", "ann", "")]
    again = [each for each in mended.reports if each["event"] == "started"]
    assert [(each["id"], each["data"]) for each in again] == [(before["id"], before["data"])] * 2
    assert await sagas.redis.zscore(parked, ledger) == 1e15 + ended.finished_at
    told = await sagas.told(mended, "payments")
    assert [(event, fields.get("state")) for event, fields in told] == [
        ("group:compensating", None),
        ("group:failed", "FAILED_COMPENSATION"),
        ("group:compensating", None),
        ("group:failed", "FAILED"),
    ]
    assert told[0] == told[2]


async def test_a_retried_undo_has_the_keys_and_events_of_a_stock_retry(
    sagas: Sagas, client: StockClient
) -> None:
    order = await failed(sagas, client, refund=fails_for_good(), untip=fails_for_good())
    await client.end()
    base = f"{sagas.prefix}:{UNDO_QUEUE}"
    before = cast(list[Any], await sagas.redis.xrange(f"{base}:events"))
    await sagas.groups.retry_undos(order.group_id, ["charge"])
    undo_id = names.undo_id(order.jobs[0].job_id)
    assert await sagas.redis.lrange(f"{base}:wait", 0, -1) == [undo_id]
    assert await sagas.redis.zrange(f"{base}:marker", 0, -1) == ["0"]
    events = cast(list[Any], await sagas.redis.xrange(f"{base}:events"))
    (entry,) = [fields for entry_id, fields in events if entry_id > before[-1][0]]
    assert entry == {"event": "waiting", "jobId": undo_id, "prev": "failed"}
    gone = ["finishedOn", "processedOn", "failedReason", "atm", "ats"]
    assert await sagas.redis.hmget(f"{base}:{undo_id}", *gone) == [None] * len(gone)
    assert await sagas.redis.zrange(f"{base}:failed", 0, -1) == [
        names.undo_id(order.jobs[1].job_id)
    ]
    await sagas.groups.resolve_undo(order.group_id, "charge", "test")


async def test_a_retry_that_fails_ends_the_group_again(sagas: Sagas, client: StockClient) -> None:
    order = await failed(sagas, client, refund=fails_for_good(), untip=fails_for_good())
    for retries in (1, 2):
        await sagas.groups.retry_undos(order.group_id, ["tip"])
        ended = await sagas.ends(order.group_id)
        assert (ended.state, ended.retries) == ("FAILED_COMPENSATION", retries)
        assert (ended.attempt, ended.undo_failed_count) == (retries + 1, 2)
    assert [each.job for each in ended.records] == [order.jobs[1].job_id] * 2
    assert client.count("started", name="refund") == 1
    assert client.count("started", name="untip") == 3


async def test_a_second_call_while_the_undos_run_changes_nothing(
    sagas: Sagas, client: StockClient
) -> None:
    order = await failed(sagas, client, refund=fails_for_good(), untip=fails_for_good())
    await client.manage(UNDO_QUEUE, "pause")
    calls = [sagas.groups.retry_undos(order.group_id) for _ in range(5)]
    group, *others = await asyncio.gather(*calls)
    assert others == [group] * 4
    for jobs in (None, ["charge"], [each.job_id for each in order.jobs[:2]]):
        assert await sagas.groups.retry_undos(order.group_id, jobs) == group
    with pytest.raises(InvalidJobStateError, match="it does not exist"):
        await sagas.groups.retry_undos(order.group_id, ["charge", "reserve"])
    await client.manage(UNDO_QUEUE, "resume")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.retries, ended.attempt) == ("FAILED_COMPENSATION", 1, 2)
    assert len(ended.records) == 1


async def test_an_undo_that_somebody_removed_is_made_again(
    sagas: Sagas, stock: ClientStarter
) -> None:
    client = await stock()
    order = await failed(sagas, client, refund=fails_for_good())
    before = await client.heard("started", name="refund")
    await client.manage(UNDO_QUEUE, "remove", job=before["id"])
    await client.end()
    await sagas.groups.retry_undos(order.group_id)
    mended = await stock()
    await mended.work(UNDO_QUEUE)
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count, ended.undo_count) == ("FAILED", 2, 2)
    again = await mended.heard("started", name="refund")
    assert (again["id"], again["data"], again["opts"]) == tuple(
        before[field] for field in ("id", "data", "opts")
    )


async def test_refused_retries_say_why_and_write_nothing(sagas: Sagas, client: StockClient) -> None:
    groups, redis = sagas.groups, sagas.redis
    order = await failed(sagas, client, refund=fails_for_good())
    charge, tip, reserve = (each.job_id for each in order.jobs)
    stranger = await sagas.add(job("other", "mails"))
    group_key = names.group_key(sagas.prefix, "payments", order.group_id)
    before = await redis.hgetall(group_key)

    async def refuses(jobs: list[str] | None, kind: type[Exception], sentence: str) -> None:
        with pytest.raises(kind, match=sentence):
            await groups.retry_undos(order.group_id, jobs)

    await refuses([], InvalidSpecError, "name at least one job")
    await refuses(["nobody"], JobNotFoundError, 'has no job "nobody"')
    await refuses([stranger.jobs[0].job_id], JobNotFoundError, "has no job")
    done = f"the undo of job {tip}: it is completed already"
    await refuses(["charge", "tip"], InvalidJobStateError, done)
    missing = f"the undo of job {reserve}: it does not exist"
    await refuses(["reserve"], InvalidJobStateError, missing)
    with pytest.raises(InvalidGroupStateError, match="Cannot retry undos of group in state ACTIVE"):
        await groups.retry_undos(stranger.group_id)
    assert await redis.hgetall(group_key) == before

    # Somebody added a job with the id of an undo that is gone.
    undo_key = names.job_key(sagas.prefix, UNDO_QUEUE, names.undo_id(charge))
    await client.manage(UNDO_QUEUE, "remove", job=names.undo_id(charge))
    await redis.hset(undo_key, "name", "foreign")
    await refuses(["charge"], InvalidJobStateError, "has the id of a job that somebody else added")
    await refuses(None, InvalidJobStateError, "none of the failed ones can be retried")
    await redis.delete(undo_key)
    # Its mapping is gone with the definition.
    await redis.hset(group_key, "compensation", "{}")
    await refuses(["charge"], InvalidJobStateError, "what it had to do is lost: resolve it")
    assert await redis.hget(group_key, "retries") is None
    assert await redis.hget(names.parent_key(sagas.prefix, order.group_id), "format") is None


async def test_a_key_of_another_type_is_found_before_the_first_write(
    sagas: Sagas, client: StockClient
) -> None:
    order = await failed(sagas, client, refund=fails_for_good())
    marker = f"{sagas.prefix}:{UNDO_QUEUE}:marker"
    await client.end()
    await sagas.redis.set(marker, "spoilt")
    before = await sagas.read(order.group_id)
    with pytest.raises(Exception, match="WRONGTYPE"):
        await sagas.groups.retry_undos(order.group_id)
    assert await sagas.read(order.group_id) == before
    await sagas.redis.delete(marker)
    assert (await sagas.groups.retry_undos(order.group_id)).state == "COMPENSATING"
    await sagas.groups.resolve_undo(order.group_id, "charge", "test")


async def test_many_undos_are_retried_in_pieces_by_any_driver(
    sagas: Sagas, start_client: Callable[[str], Awaitable[StockClient]]
) -> None:
    jobs = [job(f"job-{n}") for n in range(210)]
    undos = {each["name"]: undo("refund", attempts=1) for each in jobs}
    order = await sagas.add(*jobs, job("reserve", "inventory"), undos=undos)
    client = await start_client("bullmq6")
    await client.work("payments", concurrency=50)
    await sagas.reaches(order.group_id, completed_count=210)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work(UNDO_QUEUE, {"refund": fails_for_good()}, concurrency=50)
    await sagas.reaches(order.group_id, state="FAILED_COMPENSATION", undo_failed_count=210)
    await client.end()
    await sagas.stop()
    group = await sagas.groups.retry_undos(order.group_id)
    assert (group.state, group.undo_failed_count) == ("COMPENSATING", 10)
    wait = f"{sagas.prefix}:{UNDO_QUEUE}:wait"
    assert await sagas.redis.llen(wait) == 200
    sagas.drive()
    await sagas.reaches(order.group_id, undo_failed_count=0)
    assert await sagas.redis.llen(wait) == 210
    mended = await start_client("bullmq6")
    await mended.work(UNDO_QUEUE, concurrency=50)
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 210)
