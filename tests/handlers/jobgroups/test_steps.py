"""A replica that lost the lease writes nothing to Redis based on a stale read.

A write to the API server carries a resourceVersion, a script does not: it would cancel, remove or
orphan a group whose object has changed meanwhile.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from handlers.jobgroups.steps import REFUSED_SECONDS
from handlers.kube.leader import NotLeaderError
from jobgroup.definition.plan import plan_group
from jobgroup.errors import InvalidJobStateError
from jobgroup.resource.decisions import FINALIZER
from jobgroup.resource.jobgroup_spec import parse_definition
from jobgroup.store.replies import GroupReading
from testbed.support.resources import manifest
from testbed.support.stages import PAY, SHIP, UNDOS
from tests.handlers.jobgroups.reconcilers import Replica
from tests.resources.looking import HOUR


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


async def to_be_answered(replica: Replica) -> None:
    await runs(replica, complete={PAY["name"]: {"by": "ann"}})


async def to_be_resolved(replica: Replica) -> None:
    await compensates(replica)
    replica.resources.patch("order", resolved={PAY["name"]: {"reason": "by hand"}})


async def to_be_retried(replica: Replica) -> None:
    uid = await compensates(replica)
    replica.delete(f"bull:payments:compensation:{uid}-0-undo", "bull:payments:compensation:wait")
    await replica.store.settle([uid])
    await replica.reconcile()
    replica.resources.reaches("order", state="FAILED_COMPENSATION")
    replica.resources.patch("order", retryUndos=1)


async def compensates(replica: Replica) -> str:
    """Run an order until its undo waits; return the id of its group."""
    replica.resources.apply(manifest("order", PAY, SHIP, undos=UNDOS))
    await replica.reconcile()
    replica.resources.patch("order", complete={PAY["name"]: {"by": "ann"}})
    await replica.reconcile()
    replica.resources.patch("order", cancel=True)
    await replica.reconcile()
    replica.resources.reaches("order", state="COMPENSATING", undone="0/1")
    return str(replica.resources.get("order")["metadata"]["uid"])


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
        to_be_answered,
        to_be_resolved,
        to_be_retried,
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


@pytest.mark.parametrize(
    ("prepare", "verb"), [(to_be_resolved, "resolve_undo"), (to_be_retried, "retry_undos")]
)
async def test_what_redis_refuses_is_tried_again_after_some_seconds(
    replica: Replica,
    prepare: Callable[[Replica], Awaitable[None]],
    verb: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    async def refuse(*arguments: Any, **_: Any) -> None:
        asked.append(arguments)
        raise InvalidJobStateError("its undo is running")

    await prepare(replica)
    with monkeypatch.context() as patch:
        patch.setattr(replica.store, verb, refuse)
        assert (await replica.reconcile(), len(asked)) == (REFUSED_SECONDS, 1)
    await replica.reconcile()
    state = "FAILED" if verb == "resolve_undo" else "COMPENSATING"
    replica.resources.reaches("order", state=state)


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
