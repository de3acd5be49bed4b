"""Rules of the saga beyond VAL-01 to 21: late, lost, foreign, paused and large."""

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup import (
    CorruptKeyError,
    GroupExistsError,
    GroupRemovedError,
    InvalidGroupStateError,
    JobExistsError,
    JobGroups,
    RedisStateLostError,
    RefusedError,
)
from jobgroup.model import names
from jobgroup.store.scripts import load
from testbed.servers.stock import StockClient, fails, fails_for_good, hangs, returns
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import GROUP_EVENTS, Sagas, job, undo
from testbed.support.waiting import eventually

HOUR = 3_600_000
SHORT_LOCK = {"lockDuration": 1000, "stalledInterval": 500}


async def test_an_undo_from_the_start_also_undoes_jobs_that_only_started(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(
        job("charge", "payments"),
        job("reserve", "inventory", attempts=2, backoff=HOUR),
        job("notify", "mails"),
        undos={
            "charge": undo("refund", when="Started"),
            "reserve": undo("restock", when="Started"),
            "notify": undo("retract", when="Started"),
        },
    )
    await client.work("inventory", {"reserve": fails(1)})
    await client.heard("failed", name="reserve")
    await client.work("payments", {"charge": fails_for_good()})
    for queue in ("payments", "inventory", "mails"):
        await client.work(f"{queue}:compensation")

    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 2)
    assert await sagas.statuses(order.group_id) == ["failed", "cancelled", "cancelled"]
    refund = await client.heard("started", name="refund")
    assert refund["data"]["originalReturnValue"] is None
    assert client.count("started", name="restock") == 1
    assert client.count("started", name="retract") == 0


async def test_a_member_that_failed_is_not_undone_by_default(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), undos={"charge": undo("refund")})
    await client.work("payments", {"charge": fails_for_good()})
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undo_count) == ("FAILED", 0)


async def test_a_member_waiting_for_a_retry_is_cancelled_while_compensating(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory", attempts=2))
    await client.work("inventory", {"reserve": hangs(then=fails(1)), "other": hangs()})
    await client.heard("started", name="reserve")
    await client.work("payments", {"charge": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    # It returns to its queue, whose only worker is busy with another job.
    await client.add("inventory", "other", removeOnComplete=True)
    await client.release("reserve")

    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.failed_count, ended.cancelled_count) == ("FAILED", 1, 1)
    assert client.count("started", name="reserve") == 1
    await client.release("other")
    await client.heard("completed", name="other")


async def test_a_stalled_member_is_cancelled_while_compensating(
    sagas: Sagas, stock: ClientStarter
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    doomed, other = await stock(own=True), await stock()
    await doomed.work("inventory", {"reserve": hangs()}, **SHORT_LOCK)
    await doomed.heard("started", name="reserve")
    await other.work("payments", {"charge": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    # The worker that finds it stalled is busy and cannot run it.
    await other.work("inventory", {"other": hangs()}, **SHORT_LOCK)
    await other.add("inventory", "other", removeOnComplete=True)
    await other.heard("started", name="other")
    await doomed.kill()

    assert (await sagas.ends(order.group_id)).state == "FAILED"
    assert await sagas.statuses(order.group_id) == ["failed", "cancelled"]
    assert other.count("started", name="reserve") == 0
    await other.release("other")
    await other.heard("completed", name="other")


async def test_a_member_without_a_worker_delays_the_end_for_the_grace_only(
    sagas: Sagas, stock: ClientStarter
) -> None:
    order = await sagas.add(
        job("charge"),
        job("reserve", "inventory"),
        undos={"reserve": undo("restock", when="Started")},
    )
    doomed, other = await stock(own=True), await stock()
    await doomed.work("inventory", {"reserve": hangs()}, **SHORT_LOCK)
    await doomed.heard("started", name="reserve")
    await doomed.kill()
    await other.work("payments", {"charge": fails_for_good()})
    await other.work("inventory:compensation")
    await sagas.reaches(order.group_id, state="COMPENSATING")

    sagas.drive(grace=1)
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.failed_count, ended.undone_count) == ("FAILED", 2, 1)
    assert other.count("started", name="restock") == 1


async def test_an_undo_removed_by_hand_fails_the_compensation(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("reserve"), undos={"charge": undo("refund")})
    await client.work("payments", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING")
    await client.manage("payments:compensation", "remove", job=f"{order.jobs[0].job_id}-undo")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undo_failed_count) == ("FAILED_COMPENSATION", 1)


async def test_a_paused_queue_keeps_members_and_undos_until_it_resumes(
    sagas: Sagas, client: StockClient
) -> None:
    for queue in ("payments", "payments:compensation"):
        await client.work(queue, {"reserve": fails_for_good()})
        await client.manage(queue, "pause")
    order = await sagas.add(job("charge"), job("reserve"), undos={"charge": undo("refund")})
    charge, reserve = (member.job_id for member in order.jobs)
    assert await held(sagas, "payments") == [charge, reserve]

    await client.manage("payments", "resume")
    await sagas.reaches(order.group_id, state="COMPENSATING", completed_count=1)
    assert await held(sagas, "payments:compensation") == [f"{charge}-undo"]
    await client.manage("payments:compensation", "resume")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 1)


async def test_a_job_with_a_members_id_in_another_queue_changes_nothing(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), undos={"charge": undo("refund")})
    await client.work("mails", {"forged": fails_for_good()})
    forged = await client.add("mails", "forged", jobId=order.jobs[0].job_id, removeOnFail=True)
    await client.heard("failed", id=forged)
    await sagas.driver.resync()
    assert await sagas.statuses(order.group_id) == ["pending"]
    await client.work("payments")
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"


@pytest.mark.parametrize("outcome", [returns(1), fails_for_good()], ids=["completes", "fails"])
async def test_a_job_that_names_a_group_its_parent_changes_nothing(
    sagas: Sagas, client: StockClient, outcome: dict[str, object]
) -> None:
    order = await sagas.add(
        job("charge"), job("reserve", "inventory"), undos={"charge": undo("refund")}
    )
    family = {"id": order.group_id, "queue": f"{sagas.prefix}:_jobgroups"}
    await client.work("mails", {"forged": outcome})
    await client.add(
        "mails",
        "forged",
        parent=family,
        removeOnComplete=True,
        removeOnFail=True,
        failParentOnFailure=True,
    )
    await client.heard("completed" if "return" in outcome else "failed", name="forged")
    await client.work("payments")
    await client.heard("completed", name="charge")
    await sagas.driver.resync()
    state = await sagas.read(order.group_id)
    assert (state.state, state.completed_count, state.failed_count) == ("ACTIVE", 1, 0)
    await client.work("inventory")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.completed_count) == ("COMPLETED", 2)


async def test_a_foreign_job_does_not_replace_a_removed_member(
    sagas: Sagas, start_client: Callable[[str], Awaitable[StockClient]]
) -> None:
    client = await start_client("bullmq6")
    await sagas.stop()  # its first resync would notice the removal at once
    order = await sagas.add(job("charge"), job("reserve", "inventory"), job("pack", "parcels"))
    family = {"id": order.group_id, "queue": f"{sagas.prefix}:_jobgroups"}
    await client.work("payments")
    await client.heard("completed", name="charge")
    await client.manage("parcels", "remove", order.jobs[2].job_id)
    await client.work("mails")
    await client.add("mails", "forged", parent=family, removeOnComplete=True)
    await client.heard("completed", name="forged")
    await sagas.driver.resync()
    found = await sagas.reaches(order.group_id, completed_count=1, failed_count=1)
    assert found.failed_job_id == order.jobs[2].job_id
    assert len(await sagas.statuses(order.group_id)) == 3
    sagas.drive()
    await sagas.ends(order.group_id)


async def test_an_interrupted_cancel_is_continued(
    sagas: Sagas, start_client: Callable[[str], Awaitable[StockClient]]
) -> None:
    client = await start_client("bullmq6")
    order = await sagas.add(
        job("charge"), job("reserve", "inventory"), undos={"charge": undo("refund")}
    )
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=1)
    corrupt = f"{sagas.prefix}:payments:compensation:wait"
    await sagas.redis.set(corrupt, "a text")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await sagas.groups.cancel_group(order.group_id)
    await sagas.redis.delete(corrupt)

    await client.work("payments:compensation")
    await sagas.driver.resync()
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.reason, ended.undone_count) == ("FAILED", "cancelled", 1)
    sagas.errors.clear()


async def test_all_members_of_a_large_group_are_undone(sagas: Sagas, client: StockClient) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(
        *(job("charge", "payments") for _ in range(250)),
        job("reserve", "inventory"),
        *(job("notify", "mails") for _ in range(249)),
        undos={"charge": undo("refund"), "notify": undo("retract")},
    )
    await client.work("payments", concurrency=50)
    await sagas.reaches(order.group_id, completed_count=250)
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.work("payments:compensation", concurrency=50)

    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.completed_count, ended.failed_count, ended.cancelled_count) == (
        "FAILED",
        250,
        1,
        249,
    )
    undone = Counter(
        report["data"]["originalJobId"]
        for report in client.reports
        if report["event"] == "started" and report["name"] == "refund"
    )
    assert undone == Counter(member.job_id for member in order.jobs[:250])
    assert [event for event, _ in await sagas.told(client, "payments")] == [
        "group:compensating",
        "group:failed",
    ]


async def test_a_resync_finds_groups_without_a_wakeup(
    sagas: Sagas, start_client: Callable[[str], Awaitable[StockClient]]
) -> None:
    client = await start_client("bullmq6")
    orders = [await sagas.add(job("charge"), job("reserve", "inventory")) for _ in range(250)]
    await client.manage("inventory", "drain")
    assert await sagas.driver.resync() == 250
    for order in orders:
        assert (await sagas.read(order.group_id)).state == "FAILED"


async def test_creating_the_same_group_twice_creates_one(sagas: Sagas) -> None:
    first = await sagas.groups.add_group("order", [job("charge")], group_id="order-1")
    assert await sagas.groups.add_group("order", [job("charge")], group_id="order-1") == first
    assert await waiting(sagas, "payments:wait") == ["order-1-0"]
    with pytest.raises(GroupExistsError, match=r"^Group order-1 already exists with another"):
        await sagas.groups.add_group("order", [job("reserve")], group_id="order-1")
    assert await waiting(sagas, "payments:wait") == ["order-1-0"]


async def test_a_group_that_lost_keys_is_not_created_again(sagas: Sagas) -> None:

    async def has_looked_round() -> bool:
        return sagas.driver.counters.resyncs > 0

    # Wait for the first resync: if it ran later, it would remove what is left of the group.
    await eventually(has_looked_round)
    await sagas.groups.add_group("order", [job("charge")], group_id="order-1")
    key, aside = (f"{sagas.prefix}:{where}:groups:order-1" for where in ("payments", "aside"))
    await sagas.redis.rename(key, aside)
    left = await sagas.keys()
    with pytest.raises(
        RedisStateLostError, match=r"^Redis has lost part of the data of group order-1;"
    ):
        await sagas.groups.add_group("order", [job("charge")], group_id="order-1")
    with pytest.raises(RedisStateLostError):
        await sagas.groups.store.tombstone("order-1")
    assert await sagas.keys() == left
    await sagas.redis.rename(aside, key)


async def test_a_removed_group_cannot_be_created_again(sagas: Sagas) -> None:
    await sagas.groups.add_group("order", [job("charge")], group_id="order-1")
    with pytest.raises(InvalidGroupStateError, match=r"^Cannot remove group in state ACTIVE$"):
        await sagas.groups.remove_group("order-1")
    await sagas.groups.cancel_group("order-1")
    await sagas.groups.remove_group("order-1")
    with pytest.raises(GroupRemovedError, match=r"^Group order-1 was removed"):
        await sagas.groups.add_group("order", [job("charge")], group_id="order-1")
    assert await sagas.groups.get_group_state("order-1") is None


async def test_an_existing_member_refuses_the_whole_group(sagas: Sagas) -> None:
    taken = f"{sagas.prefix}:inventory:order-1-1"
    await sagas.redis.hset(taken, "name", "somebody else's")
    with pytest.raises(JobExistsError, match=rf"^Job {taken} already exists$"):
        await sagas.groups.add_group(
            "order", [job("charge"), job("reserve", "inventory")], group_id="order-1"
        )
    assert await sagas.keys() == ["inventory:order-1-1"]
    await sagas.redis.delete(taken)


@pytest.mark.parametrize(
    "corrupt",
    [
        *(
            f"inventory:{key}"
            for key in (
                "delayed",
                "events",
                "marker",
                "meta",
                "pc",
                "prioritized",
                "wait",
            )
        ),
        *("payments:groups", "payments:groups:order-1", "payments:groups:order-1:jobs"),
        *("_jobgroups:waiting-children", "_jobgroups:order-1"),
        "_jobgroups:order-1:dependencies",
    ],
)
async def test_a_key_of_another_type_refuses_the_whole_group(
    redis_url: str, redis: Redis, prefix: str, corrupt: str
) -> None:
    await redis.sadd(f"{prefix}:{corrupt}", "corrupt")
    jobs = [
        job("charge", "payments"),
        job("reserve", "inventory"),
        job("pack", "inventory", priority=1),
        job("ship", "inventory", delay=HOUR),
    ]
    async with JobGroups.connect(redis_url, prefix) as groups:
        with pytest.raises((RefusedError, ResponseError)):
            await groups.add_group("order", jobs, {"charge": undo("refund")}, "order-1")
    assert await redis.keys(f"{prefix}:*") == [f"{prefix}:{corrupt}"]
    await redis.delete(f"{prefix}:{corrupt}")


async def test_an_invalid_counter_refuses_the_whole_group(
    redis_url: str, redis: Redis, prefix: str
) -> None:
    await redis.set(f"{prefix}:inventory:pc", "corrupt")
    jobs = [job("charge"), job("pack", "inventory", priority=1)]
    async with JobGroups.connect(redis_url, prefix) as groups:
        with pytest.raises(CorruptKeyError, match=f"NOTANUMBER {prefix}:inventory:pc"):
            await groups.add_group("order", jobs)
    assert await redis.keys(f"{prefix}:*") == [f"{prefix}:inventory:pc"]
    await redis.delete(f"{prefix}:inventory:pc")


async def waiting(sagas: Sagas, key: str) -> list[str]:
    """Return the jobs of a list in the order in which workers take them."""
    return [str(job) for job in await sagas.redis.lrange(f"{sagas.prefix}:{key}", 0, -1)][::-1]


async def held(sagas: Sagas, queue: str) -> list[str]:
    """Return the jobs that were added to a paused queue, in the order of workers."""
    found = await sagas.redis.zrange(f"{sagas.prefix}:{queue}:prioritized", 0, -1)
    return [str(job) for job in found]


async def test_a_group_that_ends_in_the_millisecond_of_its_failure_was_compensating(
    sagas: Sagas, start_client: Callable[[str], Awaitable[StockClient]]
) -> None:
    await sagas.stop()
    client = await start_client("bullmq6")
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    await client.work("inventory", {"reserve": hangs(fails_for_good())})
    await client.heard("started", name="reserve")
    await client.work("payments", {"charge": fails_for_good()})
    await client.heard("failed", name="charge")
    redis, parent = sagas.redis, names.parent_key(sagas.prefix, order.group_id)
    settle = load("settle_group")
    await redis.script_load(settle.source)
    slots = {"parent": parent, "prefix": sagas.prefix, "gid": order.group_id, "request": ""}
    call = settle.command(**slots, grace=300_000, queue="", snapshot=0)
    key = order.jobs[1].job_key
    # In a transaction, the clock of Redis stands still.
    async with redis.pipeline() as pipeline:
        pipeline.execute_command(*call)
        pipeline.srem(f"{parent}:dependencies", key)
        pipeline.zadd(f"{parent}:unsuccessful", {key: 1})
        pipeline.hset(key, mapping={"finishedOn": 1, "failedReason": "x"})
        pipeline.execute_command(*call)
        await pipeline.execute()
    found = await sagas.read(order.group_id)
    assert (found.state, found.was_compensating) == ("FAILED", True)
    await client.release("reserve")
    await client.heard("failed", name="reserve")
