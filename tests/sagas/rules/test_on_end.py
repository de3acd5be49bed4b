"""onEnd: one job for each matching entry and each transition into an ended state."""

import json
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup import GroupExistsError, InvalidSpecError, JobExistsError, NewerFormatError, Store
from jobgroup.definition.plan import MAX_END_DATA
from jobgroup.model import names
from testbed.servers.stock import StockClient, fails, fails_for_good
from testbed.support.fixtures import QueueNamer
from testbed.support.sagas import Sagas, job, undo

# One entry for each value of `when`, and one without.
WHENS = ("Always", "Completed", "Failed", "FailedCompensation")
ENTRIES: list[dict[str, Any]] = [
    {"queueName": "alerts", "name": "any", "data": {"team": "shop"}},
    *({"when": when, "queueName": "alerts", "name": when} for when in WHENS),
]
UNDOS = {"charge": undo("refund", attempts=1)}


async def add(sagas: Sagas, *entries: dict[str, Any], group_id: str = "order") -> None:
    """Create an order that can be undone."""
    await sagas.groups.add_group(
        "Ordér/1", [job("charge"), job("ship", "shipping")], UNDOS, group_id, on_end=entries
    )


async def waiting(sagas: Sagas, queue: str = "alerts") -> dict[str, dict[str, str]]:
    """Return the jobs that wait in a queue, by their ids, the oldest first."""
    base = f"{sagas.prefix}:{queue}"
    ids: list[Any] = list(reversed(await sagas.redis.lrange(f"{base}:wait", 0, -1)))
    found: dict[Any, Any] = {each: await sagas.redis.hgetall(f"{base}:{each}") for each in ids}
    return found


async def end(sagas: Sagas, client: StockClient, state: str) -> None:
    """Run the order to this end."""
    await client.work("payments")
    await sagas.reaches("order", completed_count=1)
    await client.work("shipping", {} if state == "COMPLETED" else {"ship": fails_for_good("no")})
    if state != "COMPLETED":
        refused = {"refund": fails_for_good()} if state == "FAILED_COMPENSATION" else {}
        await client.work("payments:compensation", refused)
    assert (await sagas.ends("order")).state == state


@pytest.mark.parametrize(
    ("state", "matching"),
    [("COMPLETED", [0, 1, 2]), ("FAILED", [0, 1, 3]), ("FAILED_COMPENSATION", [0, 1, 4])],
)
async def test_an_end_adds_one_job_for_each_entry_that_matches(
    sagas: Sagas, client: StockClient, queue: QueueNamer, state: str, matching: list[int]
) -> None:
    queue("alerts")
    await add(sagas, *ENTRIES)
    await end(sagas, client, state)
    jobs = await waiting(sagas)
    assert list(jobs) == [names.end_job_id("order", n, 1) for n in matching]
    told = json.loads(jobs["order-end-0-1"]["data"])
    failure = {"jobId": "order-1", "jobName": "ship", "reason": "no", "attemptsMade": 1}
    done = state == "COMPLETED"
    counts = {
        "total": 2,
        "completed": 2 if done else 1,
        "failed": 0 if done else 1,
        "cancelled": 0,
        "undos": 0 if done else 1,
        "undone": int(state == "FAILED"),
        "undoFailed": int(state == "FAILED_COMPENSATION"),
        "resolved": 0,
    }
    assert told == {
        "groupId": "order",
        "groupName": "Ordér/1",
        "state": state,
        "attempt": 1,
        "failure": None if done else failure,
        "counts": counts,
        "data": {"team": "shop"},
    }
    # A stock worker runs it, and settling again adds nothing.
    await sagas.groups.store.settle(["order"])
    await client.work("alerts")
    started = await client.heard("started", name="any")
    assert started["data"] == told
    for each in jobs:
        await client.heard("completed", id=each)
    await sagas.groups.remove_group("order")
    assert await sagas.keys("alerts:order-*") == [f"alerts:{each}" for each in jobs]
    assert await sagas.keys("_jobgroups:order*") == []


async def test_each_later_end_adds_jobs_of_its_own(
    sagas: Sagas, client: StockClient, queue: QueueNamer
) -> None:
    queue("alerts")
    await add(sagas, *ENTRIES)
    await client.work("payments")
    await sagas.reaches("order", completed_count=1)
    await client.work("shipping", {"ship": fails_for_good()})
    await client.work("payments:compensation", {"refund": fails(1)})
    assert (await sagas.ends("order")).state == "FAILED_COMPENSATION"
    await client.manage("payments:compensation", "retry", job="order-0-undo")
    await sagas.reaches("order", state="FAILED")
    jobs = await waiting(sagas)
    assert list(jobs) == [
        *(names.end_job_id("order", n, 1) for n in (0, 1, 4)),
        *(names.end_job_id("order", n, 2) for n in (0, 1, 3)),
    ]
    told = json.loads(jobs["order-end-3-2"]["data"])
    assert (told["state"], told["attempt"], told["counts"]["undone"]) == ("FAILED", 2, 1)


async def test_a_cancelled_group_tells_why(sagas: Sagas, queue: QueueNamer) -> None:
    queue("alerts")
    await add(sagas, ENTRIES[0])
    await sagas.groups.cancel_group("order")
    await sagas.ends("order")
    told = json.loads((await waiting(sagas))["order-end-0-1"]["data"])
    assert told["failure"] == {"reason": "cancelled"}
    assert told["counts"]["cancelled"] == 2


async def test_data_and_options_arrive_as_they_were_given(
    sagas: Sagas, client: StockClient, queue: QueueNamer
) -> None:
    data = '{"large":12345678901234567890,"tiny":1e-300,"empty":[{}],"text":"\\ud83d \\"/\\u0000"}'
    opts = {"attempts": 5, "backoff": 7, "removeOnComplete": {"count": 3}, "keepLogs": 2}
    entry = {"queueName": queue("alerts"), "name": "a/b", "data": json.loads(data), "opts": opts}
    await add(sagas, entry)
    await end(sagas, client, "COMPLETED")
    (made,) = (await waiting(sagas)).values()
    assert made["name"] == "a/b"
    assert made["data"].endswith(f',"data":{data}}}')
    assert json.loads(made["opts"]) == {
        "attempts": 5,
        "backoff": {"type": "fixed", "delay": 7},
        "removeOnComplete": {"count": 3},
        "kl": 2,
    }


async def test_a_job_may_be_delayed_prioritized_or_the_next_one(
    sagas: Sagas, client: StockClient, queue: QueueNamer
) -> None:
    queue("alerts")
    opts: list[dict[str, Any]] = [{"delay": 60_000}, {"priority": 3}, {}, {"lifo": True}]
    await add(sagas, *({"queueName": "alerts", "name": "x", "opts": each} for each in opts))
    await end(sagas, client, "COMPLETED")
    assert await client.manage("alerts", "getState", job="order-end-0-1") == "delayed"
    assert await client.manage("alerts", "getState", job="order-end-1-1") == "prioritized"
    assert list(await waiting(sagas)) == ["order-end-3-1", "order-end-2-1"]


@pytest.mark.parametrize("key", ["wait", "events", "marker", "order-end-1-1", "onend"])
async def test_a_group_ends_although_a_job_cannot_be_added_until_the_key_is_repaired(
    sagas: Sagas, client: StockClient, queue: QueueNamer, redis: Redis, key: str
) -> None:
    queue("alerts")
    queue("mails")
    mail = {"queueName": "mails", "name": "mail"}
    await add(sagas, mail, {"queueName": "alerts", "name": "alert"}, mail)
    corrupt = f"{sagas.prefix}:alerts:{key}"
    entries = ""
    if key == "onend":
        corrupt = f"{sagas.prefix}:_jobgroups:order:onend"
        entries = str(await redis.getdel(corrupt))
    await redis.sadd(corrupt, "in the way")
    await end(sagas, client, "COMPLETED")
    ids = ["order-end-0-1", "order-end-2-1"]
    assert list(await waiting(sagas, "mails")) == ([] if key == "onend" else ids)
    state = await sagas.read("order")
    reason = {
        "order-end-1-1": "the queue has another job with this id",
        "onend": f"the key {corrupt} cannot be read",
    }
    wrong = "WRONGTYPE Operation against a key holding the wrong kind of value"
    assert reason.get(key, wrong) in state.on_end_error
    await sagas.driver.resync()  # in vain
    assert (await sagas.read("order")).revision == state.revision
    await redis.delete(corrupt)
    if entries:
        await redis.set(corrupt, entries)
    await sagas.driver.resync()
    assert list(await waiting(sagas, "mails")) == ids
    assert list(await waiting(sagas)) == ["order-end-1-1"]
    repaired = await sagas.read("order")
    assert repaired.on_end_error == ""
    assert repaired.revision > state.revision
    await sagas.driver.resync()
    assert list(await waiting(sagas)) == ["order-end-1-1"]


async def test_jobs_of_an_earlier_end_are_added_with_its_state(
    sagas: Sagas, client: StockClient, queue: QueueNamer, redis: Redis
) -> None:
    queue("alerts")
    await add(sagas, ENTRIES[0])
    await redis.set(f"{sagas.prefix}:alerts:wait", "in the way")
    await end(sagas, client, "FAILED_COMPENSATION")
    await client.manage("payments:compensation", "retry", job="order-0-undo")
    await client.work("payments:compensation")
    await sagas.reaches("order", state="FAILED_COMPENSATION", attempt=1)
    await redis.delete(f"{sagas.prefix}:alerts:wait")
    await sagas.driver.resync()
    jobs = await waiting(sagas)
    assert json.loads(jobs["order-end-0-1"]["data"])["state"] == "FAILED_COMPENSATION"


async def test_a_group_that_lost_its_hash_still_announces_its_end(
    sagas: Sagas, client: StockClient, queue: QueueNamer, redis: Redis
) -> None:
    queue("alerts")
    queue("payments")
    await add(sagas, ENTRIES[0])
    await redis.delete(names.group_key(sagas.prefix, "payments", "order"))
    await sagas.driver.resync()
    await sagas.ends("order")
    assert list(await waiting(sagas)) == ["order-end-0-1"]


async def test_a_group_is_refused_if_its_jobs_of_an_end_exist(
    sagas: Sagas, start_client: Any, queue: QueueNamer
) -> None:
    client = await start_client("bullmq6")
    await client.add(queue("alerts"), "foreign", {}, jobId="order-end-0-1")
    with pytest.raises(JobExistsError, match="alerts:order-end-0-1"):
        await add(sagas, ENTRIES[0])
    assert await sagas.keys("_jobgroups:order*") == []


async def test_creating_a_group_again_compares_on_end(queue: QueueNamer, sagas: Sagas) -> None:
    queue("alerts")
    await add(sagas, ENTRIES[0])
    await add(sagas, {**ENTRIES[0], "when": "Always", "opts": {"delay": 0}})
    with pytest.raises(GroupExistsError):
        await add(sagas, {**ENTRIES[0], "when": "Failed"})


@pytest.mark.parametrize("group_id", ["order-end-0", "x-end-12"])
async def test_ids_that_look_like_those_of_jobs_of_on_end_are_reserved(
    sagas: Sagas, group_id: str
) -> None:
    with pytest.raises(InvalidSpecError, match="is reserved"):
        await add(sagas, group_id=group_id)
    assert await sagas.keys(f"*{group_id}*") == []


async def test_a_driver_that_does_not_know_on_end_leaves_such_a_group_alone(
    queue: QueueNamer, sagas: Sagas, first_format: Store
) -> None:
    queue("alerts")
    await add(sagas, ENTRIES[0])
    (settled,) = await first_format.settle(["order"])
    assert isinstance(settled, NewerFormatError)


async def test_the_largest_data_is_accepted(sagas: Sagas, queue: QueueNamer) -> None:
    entry = {"queueName": queue("alerts"), "name": "x", "data": "x" * (MAX_END_DATA - 2)}
    await add(sagas, *[entry] * 10)
    await sagas.groups.cancel_group("order")
    assert len(await waiting(sagas)) == 10
