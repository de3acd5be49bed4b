"""Who has lost the lease writes nothing to Redis on the word of what it read before.

A write to the API server carries the version that was read. A script cannot: it would give up,
remove or let go of a group whose object says something else by now.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import kopf
import pytest
from redis import Redis

from handlers.cluster import Cluster, ref_of
from handlers.reconcile import Reconciler
from handlers.steps import Deposed
from handlers.workqueue import WorkQueue
from jobgroup import Store, connect
from jobgroup.answers import Found
from jobgroup.decisions import FINALIZER
from jobgroup.plan import plan_group
from jobgroup.resource import parse_definition
from jobgroup.store import now_ms
from testbed.resources import manifest
from testbed.stages import PAY, PREFIX, Stage
from tests.handlers.looking import HOUR


class Replica:
    """A reconciler without its process, whose lease is what a test says."""

    def __init__(self, stage: Stage, cluster: Cluster, store: Store) -> None:
        self.leads = True
        self.ahead = 0
        self.resources = stage.resources
        self.store = store
        self._redis_url = stage.redis.url
        self._reconciler = Reconciler(cluster, store, "cluster", WorkQueue(), lambda: self.leads)

    async def look(self) -> None:
        """Hear of the object, as the watch tells it, and see to it."""
        body = self.resources.get("order")
        self._reconciler.notice(ref_of(body), body)
        await self._reconciler.reconcile(ref_of(body))

    def found(self) -> dict[bytes, Any]:
        """Return all that Redis has, but for what the owner is told."""
        with Redis.from_url(self._redis_url) as redis:
            return {key: redis.dump(key) for key in redis.scan_iter() if b":changed:" not in key}


@pytest.fixture
async def replica(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replica]:
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(stage.api.operator))
    cluster = Cluster(kopf.OperatorSettings())
    async with connect(stage.redis.url) as redis:
        replica = Replica(stage, cluster, Store(redis, PREFIX))
        monkeypatch.setattr("handlers.reconcile.now_ms", lambda: now_ms() + replica.ahead)
        yield replica
    await cluster.close()


async def to_be_created(replica: Replica) -> None:
    # Which life of Redis this is would be noted by the first look.
    replica.resources.apply(manifest("order", PAY, suspend=True))
    await replica.look()
    replica.resources.patch("order", suspend=False)


async def to_be_cancelled_before_it_is_created(replica: Replica) -> None:
    replica.resources.apply(manifest("order", PAY, suspend=True))
    await replica.look()
    replica.resources.patch("order", cancel=True)


async def to_be_cancelled(replica: Replica) -> None:
    await runs(replica)
    replica.resources.patch("order", cancel=True)


async def to_be_given_up(replica: Replica) -> None:
    await runs(replica, activeDeadlineSeconds=60)
    replica.ahead = HOUR


async def to_be_removed(replica: Replica) -> None:
    await to_be_cancelled(replica)
    await replica.look()
    replica.resources.reaches("order", state="FAILED")
    replica.resources.delete("order")


async def to_be_let_go(replica: Replica) -> None:
    await runs(replica, deletionPolicy="Orphan")
    replica.resources.delete("order")


async def to_be_renounced(replica: Replica) -> None:
    order = manifest("order", PAY, suspend=True)
    order["metadata"]["finalizers"] = [FINALIZER]
    replica.resources.apply(order)
    await replica.look()
    replica.resources.delete("order")


async def runs(replica: Replica, **spec: Any) -> None:
    replica.resources.apply(manifest("order", PAY))
    await replica.look()
    replica.resources.reaches("order", state="ACTIVE")
    if spec:
        replica.resources.patch("order", **spec)


@pytest.mark.parametrize(
    "prepare",
    [
        to_be_created,
        to_be_cancelled_before_it_is_created,
        to_be_cancelled,
        to_be_given_up,
        to_be_removed,
        to_be_let_go,
        to_be_renounced,
    ],
)
async def test_nothing_is_written_to_redis_after_the_lease_was_lost(
    replica: Replica, prepare: Callable[[Replica], Awaitable[None]]
) -> None:
    await prepare(replica)
    before = replica.found()
    replica.leads = False
    with pytest.raises(Deposed):
        await replica.look()
    assert replica.found() == before
    replica.leads = True
    await replica.look()
    assert replica.found() != before


async def test_a_group_that_is_made_while_its_object_goes_does_not_run(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was stopped between its last look at the lease and the write wakes up."""
    await to_be_renounced(replica)
    body = replica.resources.get("order")
    uid = body["metadata"]["uid"]
    plan = plan_group(parse_definition(body), uid, "cluster", "shop/order")
    look = replica.store.look
    found: list[Found] = []
    made: list[Any] = []

    async def look_and_be_overtaken(*arguments: Any, **options: Any) -> Found:
        found.append(await look(*arguments, **options))
        # The first look is at what is remembered, the second decides.
        if len(found) == 2:
            made.extend(await replica.store.create([plan]))
        return found[-1]

    monkeypatch.setattr(replica.store, "look", look_and_be_overtaken)
    await replica.look()
    assert (found[1].group, made) == (None, [True])
    assert await replica.store.read(uid) is None
    assert not replica.resources.exists("order")
