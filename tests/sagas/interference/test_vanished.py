"""Members that people or foreign clients remove: they count as failed, and may have started."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup.model import names
from jobgroup.store.reviews import Cursor, Hints
from testbed.servers.redis_kinds import is_cluster
from testbed.servers.stock import StockClient, fails, fails_for_good, hangs, returns
from testbed.support.fixtures import ClientStarter, QueueNamer
from testbed.support.sagas import GROUP_EVENTS, Sagas, job, undo
from testbed.support.waiting import PATIENCE_SECONDS, never_returns

HOUR = 3_600_000
STARTED = {"reserve": undo("restock", when="Started")}


async def delete_keys(redis: Redis, pattern: str) -> None:
    """Delete keys as removeAllQueueData of BullMQ 5 does."""
    async for key in redis.scan_iter(pattern, count=1000):
        await redis.delete(key)


def force(client: StockClient) -> Any:
    """Return the argument with which a client also obliterates active jobs."""
    return True if client.flavour == "python" else {"force": True}


def removals(client: StockClient, job_id: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "remove": lambda: client.manage("inventory", "remove", job=job_id),
        "drain": lambda: client.manage("inventory", "drain", True),
        "clean": lambda: client.manage("inventory", "clean", 0, 10, "delayed"),
        "obliterate": lambda: client.manage("inventory", "obliterate", force(client)),
    }


@pytest.mark.parametrize("how", ["remove", "drain", "clean"])
async def test_a_member_removed_during_its_backoff_counts_as_started(
    sagas: Sagas, client: StockClient, how: str
) -> None:
    members = [job("charge"), job("reserve", "inventory", attempts=2, backoff=HOUR)]
    order = await sagas.add(*members, undos=STARTED)
    await client.work("inventory", {"reserve": fails(1)})
    await client.heard("failed", name="reserve")
    await removals(client, order.jobs[1].job_id)[how]()
    await client.work("inventory:compensation")
    await sagas.driver.resync()
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count, ended.failed_count) == ("FAILED", 1, 1)
    assert ended.reason == "removed from its queue"


async def test_an_active_member_of_an_obliterated_queue_may_have_started(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=STARTED)
    await client.work("inventory", {"reserve": hangs()})
    await client.heard("started", name="reserve")
    await client.manage("inventory", "obliterate", force(client))
    await client.work("inventory:compensation")
    await sagas.driver.resync()
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 1)
    await client.release("reserve")


@pytest.mark.parametrize("how", ["remove", "drain"])
async def test_a_removed_member_that_never_started_is_not_undone(
    sagas: Sagas, client: StockClient, how: str
) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=STARTED)
    await removals(client, order.jobs[1].job_id)[how]()
    await sagas.driver.resync()
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undo_count, ended.failed_count) == ("FAILED", 0, 1)


@pytest.mark.parametrize("lost", ["a queue", "a job", "the pseudo parent"])
async def test_a_group_that_lost_keys_is_given_up_and_undone(
    sagas: Sagas, redis: Redis, prefix: str, start_client: ClientStarter, lost: str
) -> None:
    client = await start_client("bullmq6")
    order = await sagas.add(
        job("charge"), job("reserve", "inventory"), undos={"charge": undo("refund")}
    )
    await client.work("payments")
    await client.heard("completed", name="charge")
    if lost == "the pseudo parent":
        await client.manage(names.LEDGER_QUEUE, "remove", job=order.group_id)
    else:
        pattern = "*" if lost == "a queue" else order.jobs[1].job_id
        await delete_keys(redis, f"{prefix}:inventory:{pattern}")
        await redis.delete(f"{prefix}:inventory:wait")  # a ghost would run without a name
    await client.work("payments:compensation")
    assert await sagas.driver.resync() == 1
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count, ended.failed_count) == ("FAILED", 1, 1)


async def test_a_removal_that_an_event_names_is_found_without_a_review(
    sagas: Sagas, client: StockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = [await sagas.add(job("charge"), job("reserve", "inventory")) for _ in range(2)]
    reviews = sagas.groups.store.reviews
    read_hints, followed = reviews.hints, asyncio.Event()

    async def hints(queues: Mapping[str, str]) -> dict[str, Hints]:
        found = await read_hints(queues)
        if queues.get("inventory"):
            followed.set()
        return found

    monkeypatch.setattr(reviews, "hints", hints)
    # This driver reviews all groups once, at its start, and then follows their queues.
    sagas.drive()
    await asyncio.wait_for(followed.wait(), PATIENCE_SECONDS)
    for review in ("review", "short", "unparked"):
        monkeypatch.setattr(reviews, review, never_returns)
    await client.manage("inventory", "remove", job=orders[1].jobs[1].job_id)
    assert (await sagas.ends(orders[1].group_id)).reason == "removed from its queue"
    assert (await sagas.read(orders[0].group_id)).state == "ACTIVE"


@pytest.mark.parametrize("how", ["remove", "drain", "clean", "obliterate"])
async def test_a_removal_is_found_in_the_sizes_of_the_ledger(
    sagas: Sagas, client: StockClient, how: str
) -> None:
    """That review is quick enough for the five seconds, beside any number of groups."""
    await sagas.add(job("charge"), job("bill"))
    order = await sagas.add(job("charge"), job("reserve", "inventory", delay=HOUR))
    reviews = sagas.groups.store.reviews
    assert (await reviews.short("ACTIVE", Cursor())).due == []
    await removals(client, order.jobs[1].job_id)[how]()
    assert (await reviews.short("ACTIVE", Cursor())).due == [order.group_id]
    await sagas.driver.resync()
    assert (await sagas.ends(order.group_id)).reason == "removed from its queue"
    assert (await reviews.short("FAILED", Cursor())).due == []


@pytest.mark.parametrize("running", [True, False], ids=["running", "ended"])
async def test_a_group_whose_owning_queue_was_deleted_is_given_up_or_deleted(
    sagas: Sagas, redis: Redis, prefix: str, start_client: ClientStarter, running: bool
) -> None:
    client = await start_client("bullmq6")
    await client.work("inventory")
    order = await sagas.add(
        job("charge"), job("reserve", "inventory"), undos={"reserve": undo("restock")}
    )
    await client.heard("completed", name="reserve")
    if not running:
        await client.work("payments")
        await sagas.ends(order.group_id)
        await client.heard("completed", name="charge")
    await sagas.stop()  # it might find a part of the keys deleted
    await delete_keys(redis, f"{prefix}:payments:*")
    await client.work("inventory:compensation")
    await sagas.driver.resync()
    if running:
        sagas.drive()
        ended = await sagas.ends(order.group_id)
        # The mapping was deleted with the hash: a person has to undo the member.
        assert (ended.state, ended.name) == ("FAILED_COMPENSATION", "order")
        assert (ended.undo_count, ended.undo_failed_count) == (1, 1)
        assert ended.reason == "removed from its queue"
        jobs = {each.queue_name: each for each in await sagas.groups.get_group_jobs(order.group_id)}
        assert (jobs["inventory"].status, jobs["inventory"].undo) == ("completed", "failed")
    else:
        assert await sagas.groups.get_group_state(order.group_id) is None
        assert await sagas.keys(f"_jobgroups:{order.group_id}*") == []
        await client.end()
        await delete_keys(redis, f"{prefix}:inventory*")
        await delete_keys(redis, f"{prefix}:payments*")


async def test_the_keys_of_an_ended_group_go_when_its_queue_is_obliterated(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"))
    await client.work("payments", {"charge": fails_for_good()})
    await sagas.ends(order.group_id)
    await client.heard("failed", name="charge")
    await client.manage("payments", "obliterate", force(client))
    await sagas.driver.resync()
    assert await sagas.groups.get_group_state(order.group_id) is None
    assert await sagas.keys(f"*{order.group_id}*") == [f"_jobgroups:tomb:{order.group_id}"]


async def test_the_keys_of_an_ended_group_go_although_others_use_its_obliterated_queue_again(
    sagas: Sagas, client: StockClient, queue: QueueNamer
) -> None:
    order = await sagas.add(job("charge", queue("payments")))
    await client.work("payments", {"charge": fails_for_good()})
    await sagas.ends(order.group_id)
    await client.heard("failed", name="charge")
    await client.manage("payments", "obliterate", force(client))
    await client.add("payments", "foreign")
    await client.heard("completed", name="foreign")
    await sagas.driver.resync()
    assert await sagas.groups.get_group_state(order.group_id) is None
    assert await sagas.keys(f"*{order.group_id}*") == [f"_jobgroups:tomb:{order.group_id}"]


async def test_completions_are_found_in_the_long_streams_of_several_queues(
    sagas: Sagas, redis: Redis, client: StockClient
) -> None:
    queues = ["a", "b", "c"]
    undos = {name: undo(f"undo-{name}") for name in queues}
    order = await sagas.add(*(job(n, n) for n in queues), job("reserve", "inventory"), undos=undos)
    await sagas.stop()
    for name, member in zip(queues, order.jobs, strict=False):
        async with redis.pipeline() as pipe:
            for n in range(10_000):
                fields: Any = {"event": "progress", "jobId": f"x{n}", "data": "1"}
                pipe.xadd(f"{sagas.prefix}:{name}:events", fields)
            await pipe.execute()
        await client.work(name)
        await client.heard("completed", name=name)
        await client.manage(name, "pause")
        await client.manage(name, "retry", "completed", job=member.job_id)
        await client.manage(name, "remove", job=member.job_id)
    sagas.drive(resync_seconds=0.05)
    await client.work("inventory", {"reserve": fails_for_good()})
    for name in queues:
        await client.work(f"{name}:compensation")
    assert (await sagas.ends(order.group_id)).undone_count == 3


async def test_a_retried_member_of_an_ended_group_that_vanishes_counts_as_failed(
    sagas: Sagas, start_client: ClientStarter, queue: QueueNamer
) -> None:
    older, newer = await start_client("bullmq5"), await start_client("bullmq6")
    order = await sagas.add(job("notify", "mails"), job("charge", queue("payments")))
    await newer.work("payments", {"charge": fails_for_good()})
    assert (await sagas.ends(order.group_id)).failed_count == 1
    await newer.manage("payments", "pause")
    await newer.manage("payments", "retryJobs")
    await sagas.reaches(order.group_id, failed_count=0)
    await older.add("payments", "foreign")
    await older.manage("payments", "resume")  # destroys the list in which the member waits
    await sagas.driver.resync()
    assert (await sagas.read(order.group_id)).failed_count == 1


async def test_a_group_that_lost_its_hash_is_announced_once(
    sagas: Sagas, start_client: ClientStarter, queue: QueueNamer, redis: Redis
) -> None:
    client = await start_client("bullmq6")
    await client.listen("mails", *GROUP_EVENTS)
    jobs = job("notify", queue("mails")), job("reserve", "inventory"), job("ship", "shipping")
    order = await sagas.add(*jobs)
    await client.work("shipping", {"ship": hangs(returns("x"))})
    await client.heard("started", name="ship")
    await client.work("inventory", {"reserve": fails_for_good()})
    await client.heard("event", type="group:compensating")
    await delete_keys(redis, f"{sagas.prefix}:mails:*")
    await sagas.driver.resync()
    await client.release("ship")
    await sagas.ends(order.group_id)
    await client.heard("event", type="group:failed")
    assert client.count("event", type="group:compensating") == 1


async def test_failed_undos_survive_the_removal_of_orphans(
    sagas: Sagas, start_client: ClientStarter, redis_url: str
) -> None:
    if is_cluster(redis_url):
        pytest.skip("in a Cluster, BullMQ looks for orphans on any one of the nodes")
    client = await start_client("bullmq6")
    order = await sagas.add(
        job("charge"), job("reserve", "inventory"), undos={"charge": undo("refund", attempts=1)}
    )
    await client.work("payments")
    await client.heard("completed", name="charge")
    await client.work("payments:compensation", {"refund": fails_for_good()})
    await client.work("inventory", {"reserve": fails_for_good()})
    assert (await sagas.ends(order.group_id)).state == "FAILED_COMPENSATION"
    refund = f"{order.jobs[0].job_id}-undo"
    await client.manage("payments", "removeOrphanedJobs")
    assert await client.manage("payments:compensation", "getState", job=refund) == "unknown"
    await sagas.driver.resync()
    assert await client.manage("payments:compensation", "getState", job=refund) == "failed"
    assert await sagas.keys("payments:groups") == ["payments:groups"]
