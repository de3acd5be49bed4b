"""Which jobs can be completed or failed from outside, and what happens to their group then."""

import asyncio
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from jobgroup import (
    GroupNotFoundError,
    InvalidGroupStateError,
    InvalidJobStateError,
    InvalidSpecError,
    JobNotFoundError,
    Record,
)
from jobgroup.model import names
from testbed.servers.stock import StockClient, fails, hangs, waits_for_child
from testbed.support.fixtures import ClientStarter, QueueNamer
from testbed.support.raw_keys import dump
from testbed.support.sagas import Sagas, job, undo

UNDOS = {"charge": undo("refund"), "approve": undo("withdraw")}
LONG = 300_001


async def contents(sagas: Sagas) -> dict[str, Any]:
    """Return the content of each key, without its time to live."""
    return {name: key["value"] for name, key in (await dump(sagas.redis, sagas.prefix)).items()}


async def test_the_last_answer_completes_the_group(sagas: Sagas, client: StockClient) -> None:
    await client.listen("approvals", "completed")
    order = await sagas.add(job("charge"), job("approve", "approvals"), undos=UNDOS)
    approve = order.jobs[1].job_id
    if client.flavour != "python":  # its client has no waitUntilFinished
        await client.await_end("approvals", approve)
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=1)

    answered = await sagas.groups.complete_job(order.group_id, "approve", {"limit": 500}, by="ann")
    assert (answered.completed_count, answered.state) == (2, "COMPLETED")
    assert answered.records == (Record("complete", answered.records[0].at, "ann", approve),)
    told = await client.heard("event", type="completed", queue="approvals")
    assert told["fields"]["jobId"] == approve
    if client.flavour == "python":
        state = await client.manage("approvals", "getJobState", approve)
    else:
        state = await client.manage("approvals", "getState", job=approve)
    assert state == "completed"
    if client.flavour != "python":
        assert (await client.heard("awaited", id=approve))["value"] == {"limit": 500}
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"


async def test_an_answer_that_fails_a_job_undoes_the_others(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(
        job("charge"), job("approve", "approvals", attempts=3), job("ship", "parcels"), undos=UNDOS
    )
    await client.work("payments")
    await client.work("payments:compensation")
    await sagas.reaches(order.group_id, completed_count=1)

    await sagas.groups.fail_job(order.group_id, "approve", "declined: too expensive", by="ann")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count, ended.cancelled_count) == ("FAILED", 1, 1)
    assert (ended.failed_job_id, ended.reason) == (
        order.jobs[1].job_id,
        "declined: too expensive",
    )
    (record,) = ended.records
    assert record == Record(
        "fail", record.at, "ann", order.jobs[1].job_id, "declined: too expensive"
    )
    assert not await client.manage("approvals", "getWaiting")


async def test_the_value_of_an_answer_is_passed_to_the_undo(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("approve", "approvals"), job("charge"), undos=UNDOS)
    value = {"digits": 12345678901234567890, "note": "12 €", "lines": []}
    await sagas.groups.complete_job(order.group_id, "approve", value)
    await sagas.groups.fail_job(order.group_id, "charge", "no funds")
    await client.work("approvals:compensation")
    withdraw = await client.heard("started", name="withdraw")
    if client.flavour == "python":  # JavaScript rounds such an integer
        assert withdraw["data"]["originalReturnValue"] == value
    else:
        assert withdraw["data"]["originalReturnValue"]["note"] == "12 €"
    await sagas.ends(order.group_id)


async def test_a_job_that_waits_for_its_next_attempt_can_be_answered(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge", attempts=2, backoff=3_600_000))
    await client.work("payments", {"charge": fails(1)})
    charge = order.jobs[0].job_id
    await client.heard("failed", id=charge)
    assert [each["id"] for each in await client.manage("payments", "getDelayed")] == [charge]
    await sagas.groups.fail_job(order.group_id, "charge", "the bank is closed")
    ended = await sagas.ends(order.group_id)
    assert (ended.reason, ended.failed_attempts) == ("the bank is closed", 2)


async def test_the_first_answer_holds(sagas: Sagas) -> None:
    order = await sagas.add(job("approve"), job("charge"))
    await sagas.stop()
    await sagas.groups.complete_job(order.group_id, "approve", {"a": 1, "b": 2}, by="ann")
    before = await contents(sagas)
    assert await sagas.groups.complete_job(order.group_id, "approve", {"b": 2, "a": 1.0}, by="ben")
    for answer in (
        sagas.groups.complete_job(order.group_id, "approve", {"a": 2}),
        sagas.groups.fail_job(order.group_id, "approve", "declined"),
    ):
        with pytest.raises(
            InvalidJobStateError,
            match=rf'job "approve" of group {order.group_id}: it was already completed by ann with'
            " another answer: the first answer holds$",
        ):
            await answer
    assert await contents(sagas) == before


async def test_the_same_answer_is_accepted_after_the_end(sagas: Sagas) -> None:
    order = await sagas.add(job("approve"))
    first = await sagas.groups.complete_job(order.group_id, "approve", "yes")
    assert first.state == "COMPLETED"
    assert await sagas.groups.complete_job(order.group_id, "approve", "yes") == first
    with pytest.raises(InvalidJobStateError, match="was already completed with another answer"):
        await sagas.groups.fail_job(order.group_id, "approve", "no")


async def test_an_active_job_is_left_to_its_worker(sagas: Sagas, client: StockClient) -> None:
    order = await sagas.add(job("charge"))
    await client.work("payments", {"charge": hangs()})
    await client.heard("started", name="charge")
    with pytest.raises(
        InvalidJobStateError,
        match=rf'^Cannot complete job "charge" of group {order.group_id}: it is active: its worker'
        " decides$",
    ):
        await sagas.groups.complete_job(order.group_id, "charge")
    await client.release("charge")
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"
    with pytest.raises(InvalidGroupStateError, match=r"^Cannot fail a job of a group in state COM"):
        await sagas.groups.fail_job(order.group_id, "charge", "too late")


@pytest.mark.parametrize("flavour", ["bullmq5", "bullmq6"])
async def test_a_job_that_waits_for_its_children_is_refused(
    sagas: Sagas, stock: ClientStarter, queue: QueueNamer
) -> None:
    client = await stock()
    order = await sagas.add(job("charge"))
    await client.work("payments", {"charge": waits_for_child(queue("children"))})
    await client.heard("waits", name="charge")
    with pytest.raises(InvalidJobStateError, match="has jobs of its own: they decide"):
        await sagas.groups.complete_job(order.group_id, "charge")
    await sagas.groups.cancel_group(order.group_id)


async def test_what_cannot_be_answered_is_refused_and_changes_nothing(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("twin"))
    stranger = await sagas.add(job("charge", "mails"))
    await client.work("payments", {"twin": fails(1)})
    await sagas.reaches(order.group_id, state="FAILED")
    await client.end()
    await sagas.stop()
    groups, group_id = sagas.groups, stranger.group_id
    before = await contents(sagas)
    refused: list[tuple[Any, type[Exception], str]] = [
        (groups.complete_job("nobody", "charge"), GroupNotFoundError, "Group nobody not found"),
        (groups.complete_job(group_id, "ship"), JobNotFoundError, 'has no job "ship"'),
        (groups.complete_job(group_id, order.jobs[1].job_id), JobNotFoundError, "has no job"),
        (groups.fail_job(order.group_id, "charge", "no"), InvalidGroupStateError, "state FAILED"),
        (groups.complete_job(group_id, "charge", float("nan")), InvalidSpecError, "^value cannot"),
        (groups.complete_job(group_id, "charge", {1: 2}), InvalidSpecError, "^value cannot"),
        (
            groups.complete_job(group_id, "charge", "x" * 1_000_001),
            InvalidSpecError,
            "^value: 1000003",
        ),
        (groups.complete_job(group_id, "charge", by="a\nb"), InvalidSpecError, "^by: "),
        (groups.fail_job(group_id, "charge", ""), InvalidSpecError, "^reason: say why"),
        (
            groups.fail_job(group_id, "charge", "x" * 1_000_000),
            InvalidSpecError,
            "^reason: 1000000",
        ),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            await call
    assert await contents(sagas) == before


async def test_a_job_that_its_queue_lost_is_refused(sagas: Sagas, redis: Redis) -> None:
    await sagas.stop()
    order = await sagas.add(job("charge"))
    base = f"{sagas.prefix}:payments"
    await redis.delete(f"{base}:wait")
    with pytest.raises(InvalidJobStateError, match="it is not in its queue any more"):
        await sagas.groups.complete_job(order.group_id, "charge")
    await redis.delete(f"{base}:{order.jobs[0].job_id}")
    with pytest.raises(InvalidJobStateError, match="it is not in its queue any more"):
        await sagas.groups.complete_job(order.group_id, order.jobs[0].job_id)


@pytest.mark.parametrize(
    "key",
    ["payments:completed", "payments:events", "payments:meta", "_jobgroups:wait", "ID:records"],
)
async def test_a_foreign_key_prevents_an_answer_before_the_first_write(
    sagas: Sagas, redis: Redis, key: str
) -> None:
    order = await sagas.add(job("charge"), job("ship", "parcels"))
    await sagas.stop()
    name = f"{sagas.prefix}:{key.replace('ID', f'_jobgroups:{order.group_id}')}"
    saved = await redis.dump(name)
    await redis.delete(name)
    await redis.set(name, "x")
    before = await contents(sagas)
    with pytest.raises(Exception, match="WRONGTYPE"):
        await sagas.groups.complete_job(order.group_id, "charge")
    assert await contents(sagas) == before
    await redis.delete(name)
    if saved:
        await redis.restore(name, 0, saved)


async def test_a_foreign_key_prevents_an_answer_before_a_delayed_job_leaves_its_queue(
    sagas: Sagas, redis: Redis
) -> None:
    order = await sagas.add(job("charge", delay=3_600_000), job("ship", "parcels"))
    await sagas.stop()
    await redis.set(f"{sagas.prefix}:payments:prioritized", "x")
    before = await contents(sagas)
    with pytest.raises(Exception, match="WRONGTYPE"):
        await sagas.groups.complete_job(order.group_id, "charge")
    assert await contents(sagas) == before
    await redis.delete(f"{sagas.prefix}:payments:prioritized")


async def test_a_job_in_a_list_that_is_too_long_to_search_is_refused(
    sagas: Sagas, redis: Redis
) -> None:
    order = await sagas.add(job("charge"), job("ship", "parcels"))
    await sagas.stop()
    wait, others = f"{sagas.prefix}:payments:wait", [f"x{n}" for n in range(10_000)]
    for _ in range(20):
        await redis.lpush(wait, *others)
        await redis.rpush(wait, *others)
    with pytest.raises(InvalidJobStateError, match="was not found: its queue has more than 300000"):
        await sagas.groups.complete_job(order.group_id, "charge")
    await redis.ltrim(wait, 200_000, 200_000)
    assert await redis.lrange(wait, 0, -1) == [order.jobs[0].job_id]
    answered = await sagas.groups.complete_job(order.group_id, "charge")
    assert answered.completed_count == 1


async def test_an_answer_and_workers_never_finish_a_job_twice(
    sagas: Sagas, client: StockClient
) -> None:
    await client.work("payments", concurrency=5)
    orders = [await sagas.add(job("charge"), job("ship", "parcels")) for _ in range(10)]

    async def answer(group_id: str, name: str) -> bool:
        try:
            await sagas.groups.complete_job(group_id, name, "from outside")
        except (InvalidJobStateError, InvalidGroupStateError):
            return False
        return True

    jobs = [(order.group_id, name) for order in orders for name in ("charge", "ship")]
    accepted = await asyncio.gather(*[answer(*each) for each in jobs])
    for order in orders:
        assert (await sagas.ends(order.group_id)).state == "COMPLETED"
        stream = await sagas.redis.xrange(names.events_key(sagas.prefix, "payments"))
        finished = [
            fields["jobId"]
            for _, fields in cast(Any, stream)
            if fields["event"] == "completed" and fields["jobId"] == order.jobs[0].job_id
        ]
        assert len(finished) == 1
    assert sum(accepted) >= len(orders)
