"""What tests of the operator share: names of a test's own, and looks into Redis behind its back."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from redis import Redis

from testbed.resources import Resources, until
from testbed.sagas import GROUP_EVENTS
from testbed.stock import StockClient

Starter = Callable[[str], Awaitable[StockClient]]

# Long enough for nothing to happen by itself in a test.
HOUR = 3_600_000
# An undo that is tried again without a wait.
SOON = {"type": "fixed", "delay": 1}


def own(resources: Resources, *names: str) -> list[str]:
    """Name queues of this test's own, for all tests share one Redis."""
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
    """Return what the group events of a queue's stream are called, in order."""
    return [event for event, _ in told(store, queue)]


def keys_with(store: Redis, text: str) -> list[str]:
    """Return the keys that have this in their name, a group's tombstone excepted."""
    found = [str(key) for key in store.scan_iter(f"*{text}*", count=1000)]
    return sorted(key for key in found if ":tomb:" not in key)


def traces(store: Redis, group: str) -> list[str]:
    """Return the keys of a group, and the sets and lists that still name it."""
    found = keys_with(store, group)
    books = "bull:_jobgroups"
    for token in (group, f"{group}-undo"):
        for ranked in ("waiting-children", "saga:ended"):
            if store.zscore(f"{books}:{ranked}", token) is not None:
                found.append(ranked)
        if token in cast(list[str], store.lrange(f"{books}:wait", 0, -1)):
            found.append("wait")
    return found


def saga(store: Redis, queue: str, group: str) -> dict[str, str]:
    """Return a group's own hash; `queue` is that of its first job."""
    return cast(dict[str, str], store.hgetall(f"bull:{queue}:groups:{group}"))


def ends_in_redis(store: Redis, queue: str, group: str, state: str) -> None:
    """Wait until a group has come to this state, whether or not it has an object."""
    until(
        lambda: saga(store, queue, group).get("state") == state,
        lambda: f"never {state}, but {saga(store, queue, group)}",
    )


async def runs(client: StockClient, queue: str, name: str) -> int:
    """Count how often a client ran jobs of this name, once all it said so far is read."""
    await client.manage(queue, "getWaiting")
    return client.count("started", name=name)


def lines(status: dict[str, Any]) -> dict[str, str]:
    """Return what a status says of each job, by name."""
    return {line["name"]: line["status"] for line in status["jobs"]}
