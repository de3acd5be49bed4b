"""A pending job is completed, or fails for good, without a worker: clients cannot tell."""

import json
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup.definition.answers import Answer, completion, failure
from testbed.servers.stock import Behaviour, fails_for_good, returns
from testbed.support.fixtures import ClientStarter
from testbed.support.raw_keys import dump
from testbed.support.sagas import Sagas, job

HOUR = 3_600_000
REASON = 'declined by "ann" / 12 € is too much'
VALUE = {"by": "ann", "limit": 12.5, "lines": [1, None], "note": "12 €"}
GROUP = "order-1"
QUEUE = "payments"

OUTCOMES: dict[str, tuple[Answer, Behaviour]] = {
    "completed": (completion(VALUE, "ann"), returns(VALUE)),
    "failed": (failure(REASON, "ann"), fails_for_good(REASON)),
}
# Where the job is -> its options, and how many other jobs its group has.
PLACES: dict[str, tuple[dict[str, Any], int]] = {
    "wait": ({}, 0),
    "delayed": ({"delay": HOUR, "attempts": 3}, 1),
    "delayed and prioritized": ({"delay": HOUR, "priority": 3}, 0),
    "prioritized": ({"priority": 3, "attempts": 1, "stackTraceLimit": 0}, 1),
    "paused": ({}, 1),
    "added while paused": ({}, 0),
}
# Fields of hashes that hold a time.
TIMES = ("processedOn", "finishedOn", "timestamp", "createdAt", "updatedAt")


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("place", PLACES)
async def test_an_answer_leaves_the_keys_and_events_of_a_worker(
    sagas: Sagas, redis: Redis, stock: ClientStarter, place: str, outcome: str
) -> None:
    await sagas.stop()
    answer, behaviour = OUTCOMES[outcome]
    opts, others = PLACES[place]

    async def left(is_answered: bool) -> dict[str, Any]:
        client = await stock()
        if place == "added while paused":
            await client.manage(QUEUE, "pause")
        jobs = [job("charge", QUEUE, **opts), *(job(f"other-{n}", "others") for n in range(others))]
        order = await sagas.groups.add_group("order", jobs, group_id=GROUP)
        charge = order.jobs[0].job_id
        if place == "paused":
            await client.manage(QUEUE, "pause")
        if is_answered:
            assert await sagas.groups.store.answer(GROUP, charge, answer)
        if "paused" in place:
            await client.manage(QUEUE, "resume")
        if not is_answered:
            if "delayed" in place:  # the time has come
                await redis.zadd(f"{sagas.prefix}:{QUEUE}:delayed", {charge: 0})
            await client.work(QUEUE, {"charge": behaviour})
            await client.heard(outcome, id=charge)
        await client.close()
        found = snapshot(await dump(redis, sagas.prefix), client.flavour)
        for name in [key async for key in redis.scan_iter(f"{sagas.prefix}:*", count=1000)]:
            await redis.delete(name)
        if "paused" in place:
            # Whether a queue was paused, a worker sees when it looks for its next job.
            found[f"{QUEUE}:events"] = [
                each for each in found[f"{QUEUE}:events"] if each["event"] != "drained"
            ]
            found.pop(f"{QUEUE}:pc", None)
        return found

    expected, found = await left(is_answered=False), await left(is_answered=True)
    differing = {key for key in expected | found if expected.get(key) != found.get(key)}
    assert {key: (expected.get(key), found.get(key)) for key in differing} == {}


def snapshot(keys: dict[str, Any], flavour: str) -> dict[str, Any]:
    """Return keys without times, what only an answer adds, and what clients write for themselves.

    A marker tells workers to look for jobs; whether one has looked does not matter.
    """
    found: dict[str, Any] = {}
    for full_name, key in keys.items():
        name, value = full_name.split(":", 1)[1], key["value"]
        if key["type"] == "stream":
            value = [_fields(fields, flavour) for _, fields in value]
            value = [each for each in value if each["event"] not in ("paused", "resumed")]
        elif key["type"] == "zset":
            value = list(value)
        elif key["type"] == "hash":
            value = _fields(value, flavour)
        if value and not name.endswith((":records", ":stalled-check", ":reviewer", ":marker")):
            found[name] = value
    return found


def _fields(given: dict[str, str], flavour: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith("answered:") or name in ("answers", "recorded", "revision", "version"):
            continue
        if name in TIMES or (name == "delay" and value != "0"):
            assert int(value) > 0
            fields[name] = "a time"
        elif name == "stacktrace":
            # The rest of a trace is which function failed. Python begins with it.
            line = -1 if flavour == "python" else 0
            traces = [each.strip().splitlines()[line] for each in json.loads(value)]
            fields[name] = [each.split(".")[-1] for each in traces]
        elif name == "returnvalue" or name.endswith("-0"):
            # Python escapes characters that are not ASCII.
            fields[name] = _decoded(value)
        else:
            fields[name] = value
    return fields


def _decoded(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
