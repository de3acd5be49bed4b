"""Helpers for tests of the operator: unique names, and direct reads of Redis."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from redis import Redis

from testbed.servers.stock import StockClient
from testbed.support.resources import Resources, until
from testbed.support.sagas import GROUP_EVENTS

Starter = Callable[[str], Awaitable[StockClient]]

# Longer than any test.
HOUR = 3_600_000
# The backoff of an undo that is retried at once.
SOON = {"type": "fixed", "delay": 1}


def own(resources: Resources, *names: str) -> list[str]:
    """Return queue names that are unique to this test: the tests share one Redis."""
    return [f"{name}-{resources.namespace}" for name in names]


def group_id(resources: Resources, name: str) -> str:
    """Return the id of an object's group."""
    return str(resources.get(name)["metadata"]["uid"])


def told(store: Redis, queue: str, group: str = "") -> list[tuple[str, dict[str, str]]]:
    """Return the group events of a queue's stream, in order."""
    stream = cast(list[Any], store.xrange(f"bull:{queue}:events"))
    return [
        (fields["event"], fields)
        for _, fields in stream
        if fields["event"] in GROUP_EVENTS and group in ("", fields["groupId"])
    ]


def newest_entry(store: Redis, stream: str) -> str:
    """Return the id of a stream's newest entry."""
    return str(cast(list[Any], store.xrevrange(stream, count=1))[0][0])


def kinds(store: Redis, queue: str) -> list[str]:
    """Return the names of the group events of a queue's stream, in order."""
    return [event for event, _ in told(store, queue)]


def keys_with(store: Redis, text: str) -> list[str]:
    """Return the keys with this text in their name, without tombstones."""
    found = [str(key) for key in store.scan_iter(f"*{text}*", count=1000)]
    return sorted(key for key in found if ":tomb:" not in key)


def traces(store: Redis, group: str) -> list[str]:
    """Return the keys of a group, and the sets and lists that still name it."""
    found = keys_with(store, group)
    books = "bull:_jobgroups"
    for token in (group, f"{group}-undo"):
        for ranked in ("waiting-children", "saga:released"):
            if store.zscore(f"{books}:{ranked}", token) is not None:
                found.append(ranked)
        if token in cast(list[str], store.lrange(f"{books}:wait", 0, -1)):
            found.append("wait")
    return found


def saga(store: Redis, queue: str, group: str) -> dict[str, str]:
    """Return the hash of a group; `queue` is the queue of its first job."""
    return cast(dict[str, str], store.hgetall(f"bull:{queue}:groups:{group}"))


def ends_in_redis(store: Redis, queue: str, group: str, state: str) -> None:
    """Wait until a group has this state in Redis, with or without an object."""
    until(
        lambda: saga(store, queue, group).get("state") == state,
        lambda: f"never {state}, but {saga(store, queue, group)}",
    )


async def runs(client: StockClient, queue: str, name: str) -> int:
    """Return how often a client has run jobs of this name so far."""
    await client.manage(queue, "getWaiting")
    return client.count("started", name=name)


def lines(status: dict[str, Any]) -> dict[str, str]:
    """Return the status of each job by name."""
    return {line["name"]: line["status"] for line in status["jobs"]}
