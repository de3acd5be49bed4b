"""A replica that lost the lease writes nothing to Redis based on a stale read.

A write to the API server carries a resourceVersion, a script does not: it would cancel, remove or
orphan a group whose object has changed meanwhile.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import kopf
import pytest
from redis import Redis

from handlers.kube.client import ApiClient
from handlers.kube.leader import NotLeaderError
from handlers.kube.refs import ref_of
from jobgroup import Store, connect
from jobgroup.definition.plan import plan_group
from jobgroup.model.clock import now_ms
from jobgroup.resource.decisions import FINALIZER
from jobgroup.resource.jobgroup_spec import parse_definition
from jobgroup.store.replies import GroupReading
from testbed.support.resources import manifest
from testbed.support.stages import PAY, PREFIX, Stage
from tests.handlers.jobgroups.reconcilers import build_reconciler
from tests.resources.looking import HOUR


class Replica:
    """A reconciler that runs inside the test; the test sets whether it is the leader."""

    def __init__(self, stage: Stage, api: ApiClient, store: Store) -> None:
        self.is_leader = True
        self.ahead = 0
        self.resources = stage.resources
        self.store = store
        self._redis_url = stage.redis.url
        self._reconciler = build_reconciler(api, store, lambda: self.is_leader)

    async def reconcile(self) -> None:
        """Pass the watch event of the object, and reconcile it."""
        body = self.resources.get("order")
        self._reconciler.enqueue(ref_of(body), body)
        await self._reconciler.reconcile(ref_of(body))

    def found(self) -> dict[bytes, Any]:
        """Return all keys of Redis except the stream of changes."""
        with Redis.from_url(self._redis_url) as redis:
            return {key: redis.dump(key) for key in redis.scan_iter() if b":changed:" not in key}


@pytest.fixture
async def replica(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replica]:
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(stage.api.operator))
    api = ApiClient(kopf.OperatorSettings())
    async with connect(stage.redis.url) as redis:
        replica = Replica(stage, api, Store(redis, PREFIX))
        monkeypatch.setattr(
            "handlers.jobgroups.reconciler.now_ms", lambda: now_ms() + replica.ahead
        )
        yield replica
    await api.close()


async def to_be_created(replica: Replica) -> None:
    # The first reconcile writes the incarnation of Redis.
    replica.resources.apply(manifest("order", PAY, suspend=True))
    await replica.reconcile()
    replica.resources.patch("order", suspend=False)


async def to_be_cancelled_before_it_is_created(replica: Replica) -> None:
    replica.resources.apply(manifest("order", PAY, suspend=True))
    await replica.reconcile()
    replica.resources.patch("order", cancel=True)


async def to_be_cancelled(replica: Replica) -> None:
    await runs(replica)
    replica.resources.patch("order", cancel=True)


async def to_be_expired(replica: Replica) -> None:
    await runs(replica, activeDeadlineSeconds=60)
    replica.ahead = HOUR


async def to_be_removed(replica: Replica) -> None:
    await to_be_cancelled(replica)
    await replica.reconcile()
    replica.resources.reaches("order", state="FAILED")
    replica.resources.delete("order")


async def to_be_orphaned(replica: Replica) -> None:
    await runs(replica, deletionPolicy="Orphan")
    replica.resources.delete("order")


async def to_be_tombstoned(replica: Replica) -> None:
    order = manifest("order", PAY, suspend=True)
    order["metadata"]["finalizers"] = [FINALIZER]
    replica.resources.apply(order)
    await replica.reconcile()
    replica.resources.delete("order")


async def runs(replica: Replica, **spec: Any) -> None:
    replica.resources.apply(manifest("order", PAY))
    await replica.reconcile()
    replica.resources.reaches("order", state="ACTIVE")
    if spec:
        replica.resources.patch("order", **spec)


@pytest.mark.parametrize(
    "prepare",
    [
        to_be_created,
        to_be_cancelled_before_it_is_created,
        to_be_cancelled,
        to_be_expired,
        to_be_removed,
        to_be_orphaned,
        to_be_tombstoned,
    ],
)
async def test_nothing_is_written_to_redis_after_the_lease_was_lost(
    replica: Replica, prepare: Callable[[Replica], Awaitable[None]]
) -> None:
    await prepare(replica)
    before = replica.found()
    replica.is_leader = False
    with pytest.raises(NotLeaderError):
        await replica.reconcile()
    assert replica.found() == before
    replica.is_leader = True
    await replica.reconcile()
    assert replica.found() != before


async def test_a_group_created_during_the_deletion_of_its_object_does_not_run(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old leader was suspended after its check of the lease, resumes, and creates the group."""
    await to_be_tombstoned(replica)
    body = replica.resources.get("order")
    uid = body["metadata"]["uid"]
    plan = plan_group(parse_definition(body), uid, "cluster", "shop/order")
    read_with = replica.store.read_with
    found: list[GroupReading] = []
    made: list[Any] = []

    async def read_and_create_meanwhile(*arguments: Any, **options: Any) -> GroupReading:
        found.append(await read_with(*arguments, **options))
        # The first read belongs to the cached object, the second one to the fresh object.
        if len(found) == 2:
            made.extend(await replica.store.create([plan]))
        return found[-1]

    monkeypatch.setattr(replica.store, "read_with", read_and_create_meanwhile)
    await replica.reconcile()
    assert (found[1].group, made) == (None, [True])
    assert await replica.store.read(uid) is None
    assert not replica.resources.exists("order")
