"""A job added by us has the same keys as the same job added by a stock client.

A stock client adds jobs to one queue, and we add jobs with the same ids and the same time to
another. Every difference must be in the table below.
"""

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

import pytest

from jobgroup.store import store
from testbed.servers.stock import FLAVOURS, StockClient, fails_for_good, returns
from testbed.support.fixtures import QueueNamer
from testbed.support.sagas import Sagas

NOW = 1_900_000_000_000
GROUP = "order-1"
DATA = {"orderId": "123", "amount": 99.99, "big": 9007199254740991, "to": "Zoë", "lines": [1, None]}


@dataclass(frozen=True)
class Allowed:
    """An intended difference, and the reason."""

    path: str
    reason: str
    flavours: tuple[str, ...] = FLAVOURS
    case: str = "*"


NODE = ("bullmq5", "bullmq6")
ALLOWED = (
    Allowed("id", "the counter of automatic ids; our jobs have ids of their own"),
    Allowed("meta version", "a Queue in Node stores its name and version", NODE),
    Allowed("groups*", "the group itself"),
    Allowed("meta groups", "shows that the queue was not obliterated since it got a group"),
    Allowed("job * parentKey", "the ledger: BullMQ records the end of a job at its parent"),
    Allowed("job * parent", "the ledger"),
    Allowed("job * returnvalue", "null from the start: a job without it was run again"),
    Allowed("job * opts group", "shows stock clients that a job belongs to a group"),
    Allowed("job * opts removeOn*", "a job removed before its group ends could not be undone"),
    Allowed("job * opts attempts", "the default, which each client adds when it reads a job"),
    Allowed("job * opts jobId", "stock clients store that the caller chose the id"),
    Allowed("job * opts timestamp", "set by this test instead of the clock of a stock client"),
    Allowed("job * opts delay", "Python writes a default value", ("python",)),
    Allowed("wait", "jobs of a paused queue go to `prioritized`", ("bullmq6", "python"), "paused"),
    Allowed("paused", "jobs of a paused queue go to `prioritized`", ("bullmq5",), "paused"),
    Allowed("prioritized", "jobs of a paused queue go to `prioritized`", case="paused"),
    Allowed("pc", "the counter of `prioritized`", case="paused"),
    Allowed("events * group", "shows that no other producer added a job with this id"),
    Allowed("job * data", "Python escapes characters that are not ASCII", ("python",)),
)

# The jobs that are added to the queue, in order.
CASES: dict[str, list[dict[str, Any]]] = {
    "standard": [{}],
    "three of them": [{}, {}, {}],
    "lifo": [{}, {"lifo": True}, {}, {"lifo": True}],
    "prioritized": [{"priority": 7}, {"priority": 1}, {"priority": 2_097_151}, {"priority": 7}],
    "delayed": [{"delay": 5000}],
    "delayed to the same millisecond": [{"delay": 5000}, {"delay": 5000}, {"delay": 1}],
    "delayed and prioritized": [{"delay": 5000, "priority": 3}, {}, {"priority": 3}],
    "retried": [{"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}}],
    "retried steadily": [{"attempts": 3, "backoff": {"type": "fixed", "delay": 50}}],
    "retried after a number": [{"attempts": 3, "backoff": 50}],
    "logs and stacks": [{"keepLogs": 5, "stackTraceLimit": 3}],
    "swept": [{"removeOnComplete": True, "removeOnFail": 100}, {"removeOnComplete": {"age": 60}}],
    "paused": [{}, {"lifo": True}],
    "paused and prioritized": [{"priority": 7}],
    "paused and delayed": [{"delay": 5000}],
    "as concurrent as allowed": [{}, {"priority": 7}, {"delay": 5000}],
}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the time at which we add members. Undos get the time of Redis."""
    monkeypatch.setattr(store, "now_ms", lambda: NOW)


@pytest.mark.parametrize("case", CASES)
async def test_a_member_is_the_job_a_stock_client_would_add(
    client: StockClient, sagas: Sagas, queue: QueueNamer, case: str
) -> None:
    for name in ("stock", "ours"):
        await prepare(client, sagas, queue(name), case)
    for n, opts in enumerate(CASES[case]):
        given = {**opts, "jobId": f"{GROUP}-{n}", "timestamp": NOW}
        await client.add("stock", f"job-{n}", DATA, **given)
    jobs = [
        {"name": f"job-{n}", "queueName": "ours", "data": DATA, "opts": opts}
        for n, opts in enumerate(CASES[case])
    ]
    await sagas.groups.add_group("order", jobs, group_id=GROUP)

    stock, ours = [await photograph(sagas, name) for name in ("stock", "ours")]
    assert differences(stock, ours, client.flavour, case) == {}


async def test_an_undo_is_the_job_a_stock_client_would_add(
    client: StockClient, sagas: Sagas, queue: QueueNamer
) -> None:
    jobs = [{"name": name, "queueName": "ours", "data": DATA} for name in ("charge", "ship")]
    undo = {"charge": {"name": "refund", "data": DATA}}
    await sagas.groups.add_group("order", jobs, undo, group_id=GROUP)
    await client.work(queue("ours"), {"charge": returns({"receipt": 7}), "ship": fails_for_good()})
    await client.heard("completed", name="charge")
    await client.heard("failed", name="ship")
    await sagas.reaches(GROUP, state="COMPENSATING")

    data = {
        "groupId": GROUP,
        "originalJobName": "charge",
        "originalJobId": f"{GROUP}-0",
        "originalReturnValue": {"receipt": 7},
        "compensationData": DATA,
    }
    opts = {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}}
    undo_id = f"{GROUP}-0-undo"
    added_at = await sagas.redis.hget(f"{sagas.prefix}:ours:compensation:{undo_id}", "timestamp")
    given = {**opts, "jobId": undo_id, "timestamp": int(added_at or 0)}
    await client.add(queue("stock:compensation"), "refund", data, **given)
    stock, ours = [await photograph(sagas, f"{name}:compensation") for name in ("stock", "ours")]
    assert differences(stock, ours, client.flavour, "undo") == {}
    await client.work(queue("ours:compensation"))
    await sagas.ends(GROUP)


async def prepare(client: StockClient, sagas: Sagas, queue: str, case: str) -> None:
    """Bring a queue into the state of a case."""
    redis, base = sagas.redis, f"{sagas.prefix}:{queue}"
    if case.startswith("paused"):
        await client.manage(queue, "pause")
    if case == "as concurrent as allowed":
        await redis.hset(f"{base}:meta", "concurrency", "1")
        await redis.lpush(f"{base}:active", "somebody")


async def photograph(sagas: Sagas, queue: str) -> dict[str, Any]:
    """Return the content of a queue's keys, with a path for each value."""
    redis, base = sagas.redis, f"{sagas.prefix}:{queue}"
    seen: dict[str, Any] = {}
    async for key in redis.scan_iter(f"{base}:*", count=1000):
        name, kind = key.removeprefix(f"{base}:"), await redis.type(key)
        if kind == "hash" and name.startswith(GROUP):
            for field, value in cast(dict[str, str], await redis.hgetall(key)).items():
                if field == "opts":
                    seen |= {f"job {name} opts {opt}": v for opt, v in json.loads(value).items()}
                else:
                    seen[f"job {name} {field}"] = value
        elif kind == "hash":
            fields = cast(dict[str, str], await redis.hgetall(key))
            seen |= {f"{name} {field}": value for field, value in fields.items()}
        elif kind == "list":
            seen[name] = await redis.lrange(key, 0, -1)
        elif kind == "zset":
            seen[name] = await redis.zrange(key, 0, -1, withscores=True)
        elif kind == "stream":
            entries = cast(list[tuple[str, dict[str, str]]], await redis.xrange(key))
            for n, (_, fields) in enumerate(entries):
                seen |= {f"{name} {n} {field}": value for field, value in fields.items()}
        else:
            seen[name] = await redis.get(key)
    return seen


def differences(
    stock: dict[str, Any], ours: dict[str, Any], flavour: str, case: str
) -> dict[str, tuple[Any, Any]]:
    """Return the differences that are not intended: the stock value and ours."""
    allowed = [row for row in ALLOWED if flavour in row.flavours and fnmatchcase(case, row.case)]
    return {
        path: (stock.get(path), ours.get(path))
        for path in sorted(stock.keys() | ours.keys())
        if stock.get(path) != ours.get(path)
        and not any(fnmatchcase(path, row.path) for row in allowed)
    }
