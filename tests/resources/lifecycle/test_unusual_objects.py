"""Unusual objects: in deleted namespaces, copied, with lost groups, or with invalid specs.

Also groups without an object, and clusters that share a Redis.
"""

import json
import secrets
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from redis import Redis

from jobgroup import JobGroups
from testbed.servers.apiserver import ApiServer, KubectlError
from testbed.servers.stock import StockClient, fails_for_good
from testbed.support.resources import Resources, install_crds, manifest, until
from testbed.support.sagas import job, undo
from testbed.support.scrapes import Scrape
from testbed.support.stages import LOSE, PAY, Stage
from testbed.support.waiting import wait_for
from tests.resources.fixtures import PREFIX, Shared
from tests.resources.looking import (
    Starter,
    ends_in_redis,
    group_id,
    keys_with,
    kinds,
    newest_entry,
    own,
    runs,
    saga,
    traces,
)

UNDOS = {"charge": undo("refund")}
# With 50 attempts, it would exceed the limit of an hour.
GROWING = {"type": "exponential", "delay": 1000}


async def half_done(island: Stage) -> tuple[StockClient, str]:
    """Run a group until one job completed and one waits; return a worker and the group's id."""
    resources = island.resources
    resources.apply(
        manifest("order", job("charge", "payments"), job("notify", "mails"), undos=UNDOS)
    )
    client = await island.client()
    await client.work("payments")
    resources.reaches("order", state="ACTIVE", completedCount=1)
    return client, group_id(resources, "order")


# A deleted namespace


async def test_a_running_group_of_a_deleted_namespace_is_undone(island: Stage) -> None:
    with island.operator() as operator:
        client, group = await half_done(island)
        await loses_its_namespace(island, client, group)
        assert f"released the group {group}, because its namespace is deleted" in operator.log
        name = f"{island.namespace}/order"
        until(
            lambda: f"group {group} of {name}: removed" in operator.log,
            lambda: operator.log,
        )
        counts = Scrape.of(operator).by("step", "jobgroup_released_groups_total")
        assert counts == {"released": 1, "removed": 1}


async def test_a_failed_compensation_of_a_deleted_namespace_is_kept(island: Stage) -> None:
    with island.operator():
        client, group = await half_done(island)
        await loses_its_object(island, group)
        await client.work("payments:compensation", {"refund": fails_for_good("account closed")})
        ends_in_redis(island.store, "payments", group, "FAILED_COMPENSATION")
    found = saga(island.store, "payments", group)
    assert kinds(island.store, "payments") == ["group:compensating", "group:failed"]
    assert found["resource"] == f"{island.namespace}/order"


async def test_a_compensation_that_failed_before_its_object_was_released_is_kept(
    island: Stage,
) -> None:
    with island.operator():
        client, group = await half_done(island)
        await client.work("payments:compensation", {"refund": fails_for_good("account closed")})
    # No operator runs: the undo fails while the object is deleted and its status is still ACTIVE.
    island.api.kubectl("delete", "namespace", island.resources.namespace, "--wait=false")
    async with JobGroups.connect(island.redis.url) as groups:
        await groups.cancel_group(group)
        assert (await groups.wait_for_group(group, 60)).state == "FAILED_COMPENSATION"
    with island.operator() as operator:
        until(lambda: not island.namespace_exists(), lambda: "the namespace is stuck")
        released = f"released the group {group}, because its namespace is deleted"
        until(lambda: released in operator.log, lambda: operator.log)
    found = saga(island.store, "payments", group)
    assert (found["state"], found["resource"]) == (
        "FAILED_COMPENSATION",
        f"{island.namespace}/order",
    )


async def test_an_object_that_awaits_its_undos_does_not_block_its_namespace(island: Stage) -> None:
    with island.operator():
        client, group = await half_done(island)
        island.resources.delete("order")
        island.resources.reaches("order", state="COMPENSATING")
    with island.operator():
        # When another object reports progress, all objects have been reconciled.
        elsewhere = Resources(island.api, "default")
        elsewhere.apply(manifest("next", job("charge", "later"), job("notify", "mails")))
        elsewhere.reaches("next", state="ACTIVE")
        await client.work("later")
        elsewhere.reaches("next", completedCount=1)
        elsewhere.delete("next")
        elsewhere.goes("next")
        await loses_its_namespace(island, client, group)


async def loses_its_object(island: Stage, group: str) -> None:
    """Delete the namespace of a running group, and check that its object does not keep it."""
    island.api.kubectl("delete", "namespace", island.resources.namespace, "--wait=false")
    until(lambda: not island.namespace_exists(), lambda: "the namespace is stuck")
    assert island.store.hget(f"bull:_jobgroups:{group}", "owner") is None
    assert saga(island.store, "payments", group)["state"] == "COMPENSATING"
    assert island.store.llen("bull:payments:compensation:wait") == 1


async def loses_its_namespace(island: Stage, client: StockClient, group: str) -> None:
    """Delete the namespace of a running group, and check that it is undone and removed."""
    await loses_its_object(island, group)
    await client.work("payments:compensation")
    await client.heard("completed", name="refund")
    until(lambda: traces(island.store, group) == [], lambda: str(traces(island.store, group)))


# Copies


def copy_of(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object of `kubectl get -o json` with another name, otherwise unchanged."""
    copy = deepcopy(body)
    del copy["metadata"]["resourceVersion"]
    copy["metadata"]["name"] = name
    return copy


async def test_a_copied_object_gets_a_group_of_its_own(
    resources: Resources, store: Redis, worker: Starter
) -> None:
    (payments,) = own(resources, "payments")
    client = await worker("python")
    await client.work(payments)
    resources.apply(manifest("order", job("charge", payments)))
    resources.reaches("order", state="COMPLETED")
    original = resources.get("order")
    copy = copy_of(original, "copy")
    assert copy["metadata"]["finalizers"]
    assert any(key.startswith("jobgroups.dev/") for key in copy["metadata"]["annotations"])
    # Suspended, so that the status can be restored as backups do.
    copy["spec"]["suspend"] = True
    resources.user.create(copy)
    status = json.dumps({"status": original["status"]})
    resources.kubectl(
        "patch", "jobgroup", "copy", "--subresource=status", "--type=merge", "-p", status
    )
    assert "groupId" not in resources.reaches("copy", state="PENDING")
    resources.patch("copy", suspend=False)

    group = group_id(resources, "copy")
    resources.reaches("copy", state="COMPLETED", groupId=group)
    assert await runs(client, payments, "charge") == 2
    finalizers = resources.get("copy")["metadata"]["finalizers"]
    assert len(finalizers) == len(set(finalizers))
    resources.kubectl("delete", "jobgroup", "copy", "--timeout=60s")
    assert traces(store, group) == []
    assert resources.status("order") == original["status"]
    assert traces(store, original["metadata"]["uid"]) != []


async def test_an_object_restored_after_its_deletion_runs_again(
    resources: Resources, worker: Starter
) -> None:
    (payments,) = own(resources, "payments")
    client = await worker("bullmq5")
    await client.work(payments)
    resources.apply(manifest("order", job("charge", payments)))
    resources.reaches("order", state="COMPLETED")
    backup = resources.get("order")
    resources.kubectl("delete", "jobgroup", "order", "--timeout=60s")

    resources.user.create(copy_of(backup, "order"))
    status = resources.reaches("order", state="COMPLETED")
    assert status["groupId"] != backup["metadata"]["uid"]
    assert await runs(client, payments, "charge") == 2


# A Redis that lost its data


async def test_a_group_that_redis_lost_is_not_run_again(island: Stage) -> None:
    resources, store = island.resources, island.store
    with island.operator():
        client, _ = await half_done(island)
        await client.end()
        store.flushall()
        assert "Redis lost the group" in resources.stalls("order", "RedisStateLost")
    with island.operator():
        # The next object was reconciled, so this one was reconciled before it.
        resources.apply(manifest("next", job("charge", "other")))
        resources.reaches("next", state="ACTIVE")
        resources.stalls("order", "RedisStateLost")
        assert keys_with(store, "payments") == keys_with(store, "mails") == []
        resources.delete("order")
        resources.goes("order")


# Invalid specs


def test_a_backoff_that_grows_too_long_is_refused_by_the_operator(
    resources: Resources, store: Redis
) -> None:
    (payments,) = own(resources, "payments")
    resources.apply(manifest("order", job("charge", payments, attempts=50, backoff=GROWING)))
    said = resources.stalls("order", "InvalidSpec")
    assert "exponential backoff from 1000 ms would wait longer than 3600000 ms" in said
    is_refused(resources, store, payments)


def test_a_spec_that_is_too_big_is_refused_by_the_operator(
    resources: Resources, store: Redis
) -> None:
    (payments,) = own(resources, "payments")
    body = manifest("order", {**job("charge", payments), "data": {"text": "x" * 600_000}})
    resources.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(body))
    said = resources.stalls("order", "InvalidSpec")
    assert said == "spec has 587 KB; the limit is 512 KB"
    is_refused(resources, store, payments)


def is_refused(resources: Resources, store: Redis, queue: str) -> None:
    """Check that an object is finished, and has neither a group nor a finalizer."""
    meta = resources.get("order")["metadata"]
    assert "finalizers" not in meta
    resources.kubectl("wait", "--for=condition=Finished", "jobgroup/order", "--timeout=60s")
    assert resources.condition("order", "Succeeded", "False", "InvalidSpec")
    assert resources.status("order")["state"] == "FAILED"
    assert keys_with(store, queue) == traces(store, meta["uid"]) == []
    resources.delete("order")
    resources.goes("order")


def test_a_refused_object_is_deleted_after_its_time_to_live(resources: Resources) -> None:
    unfit = job("charge", "payments", attempts=50, backoff=GROWING)
    resources.apply(manifest("order", unfit, ttlSecondsAfterFinished=3600))
    resources.stalls("order", "InvalidSpec")
    resources.patch("order", ttlSecondsAfterFinished=0)
    resources.goes("order")


@pytest.mark.parametrize("field", [{"retries": 3}, {"deletionPolicy": "Keep"}])
def test_an_object_that_a_newer_release_may_accept_is_not_finished(
    stage: Stage, newer_crd: None, field: dict[str, Any]
) -> None:
    resources = stage.resources
    resources.apply(manifest("order", job("charge", "payments"), **field))
    with stage.operator():
        resources.stalls("order", "InvalidSpec")
        assert resources.status("order")["state"] == "PENDING"
        assert resources.condition("order", "Finished", "False", "InvalidSpec")
        # Once the field is removed, the group runs.
        resources.patch("order", **dict.fromkeys(field))
        resources.reaches("order", state="ACTIVE")


@pytest.fixture
def newer_crd(stage: Stage) -> Iterator[None]:
    """Install a CRD with a field and a choice that this release does not know."""
    api, name = stage.api, "jobgroups.jobgroups.dev"
    place = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties"
    newer = [
        {"op": "add", "path": f"{place}/retries", "value": {"type": "integer"}},
        {"op": "add", "path": f"{place}/deletionPolicy/enum/-", "value": "Keep"},
    ]
    api.kubectl("patch", "crd", name, "--type=json", "-p", json.dumps(newer))
    probe = manifest("probe", job("charge", "payments"), retries=3, deletionPolicy="Keep")

    def is_served() -> bool:
        try:
            arguments = ("create", "--dry-run=server", "-f", "-")
            stage.resources.kubectl(*arguments, stdin=json.dumps(probe))
        except KubectlError:
            return False
        return True

    wait_for(is_served)
    yield
    install_crds(api)


# Groups without an object


async def test_groups_of_the_python_api_are_driven_by_the_same_operator(
    shared: Shared, worker: Starter
) -> None:
    payments, mails = (f"{name}-{secrets.token_hex(4)}" for name in ("payments", "mails"))
    client = await worker("python")
    await client.work(payments)
    await client.work(f"{payments}:compensation")
    async with JobGroups.connect(shared.redis.url, PREFIX) as groups:
        jobs = [job("charge", payments), job("notify", mails)]
        good = await groups.add_group("good", [job("charge", payments)])
        bad = await groups.add_group("bad", jobs, UNDOS)
        assert (await groups.wait_for_group(good.group_id, 60)).state == "COMPLETED"
        await client.work(mails, {"notify": fails_for_good()})
        ended = await groups.wait_for_group(bad.group_id, 60)
        assert (ended.state, ended.failed_count) == ("FAILED", 1)
        assert ended.undone_count == ended.completed_count


# Clusters that share a Redis


async def test_two_clusters_that_share_a_redis_change_only_their_own_groups(
    resources: Resources, shared: Shared, store: Redis, island: Stage, worker: Starter
) -> None:
    payments, mails = own(resources, "payments", "mails")
    body = manifest("order", job("charge", payments), job("notify", mails), undos=UNDOS)
    theirs = island.resources
    with island.operator(REDIS_URL=shared.redis.url):
        for each in (resources, theirs):
            each.apply(body)
            each.reaches("order", state="ACTIVE")
        client = await worker("bullmq6")
        await client.work(payments)
        for each in (resources, theirs):
            each.reaches("order", completedCount=1)
    group, their_group = group_id(resources, "order"), group_id(theirs, "order")
    owners = {store.hget(f"bull:_jobgroups:{each}", "owner") for each in (group, their_group)}
    assert owners == {uid(shared.api), uid(island.api)}

    # While their operator is stopped, ours drives both groups, but reports only its own.
    before = theirs.get("order")
    await client.work(mails)
    resources.reaches("order", state="COMPLETED")
    ends_in_redis(store, payments, their_group, "COMPLETED")
    resources.kubectl("delete", "jobgroup", "order", "--timeout=60s")
    assert traces(store, group) == []
    assert saga(store, payments, their_group)["state"] == "COMPLETED"
    assert theirs.get("order") == before
    with island.operator(REDIS_URL=shared.redis.url):
        theirs.reaches("order", state="COMPLETED", groupId=their_group)


async def test_cancelling_in_one_cluster_cancels_nothing_in_another(
    resources: Resources, shared: Shared, store: Redis, island: Stage
) -> None:
    (payments,) = own(resources, "payments")
    theirs = island.resources
    with island.operator(REDIS_URL=shared.redis.url):
        for each in (resources, theirs):
            each.apply(manifest("order", job("charge", payments)))
            each.reaches("order", state="ACTIVE")
        theirs.patch("order", cancel=True)
        theirs.reaches("order", state="FAILED")
        theirs.delete("order")
        theirs.goes("order")
    assert resources.status("order")["state"] == "ACTIVE"
    assert saga(store, payments, group_id(resources, "order"))["state"] == "ACTIVE"


def uid(api: ApiServer) -> str:
    """Return the uid of a cluster."""
    return api.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")


# Operators that share a cluster


async def test_operators_of_one_cluster_change_only_their_own_objects_and_miss_no_entry(
    stage: Stage,
) -> None:
    worker = await stage.worker({"refund": fails_for_good("closed")})
    with stage.operator("first"):
        stage.resources.apply(manifest("order", PAY, LOSE, undos={"pay": undo("refund")}))
        stage.resources.reaches("order", state="FAILED_COMPENSATION")
    await worker.end()
    group, books = group_id(stage.resources, "order"), f"{PREFIX}:_jobgroups"
    with stage.operator("elsewhere", KOPF_RUN_NAMESPACES="default") as elsewhere:
        # Retry as in the runbook; without a change, ended groups are not reconciled.
        worker = await stage.worker()
        await worker.manage("payments:compensation", "retry", job=f"{group}-0-undo")
        until(
            lambda: saga(stage.store, "payments", group).get("undoneCount") == "1",
            lambda: elsewhere.log,
        )
        newest = newest_entry(stage.store, f"{books}:changed:{uid(stage.api)}")
        heard = f"{books}:heard:{uid(stage.api)}"
        until(lambda: newest in stage.store.hvals(heard), lambda: elsewhere.log)
        stage.resources.condition("order", "Compensated", "False")
        # Each release has a lease of its own.
        with stage.operator(
            "ours", KOPF_RUN_NAMESPACES=stage.namespace, LEASE_NAME="jobgroup-operator"
        ):
            stage.resources.condition("order", "Compensated", "True")
        assert stage.namespace not in elsewhere.log


async def test_the_status_is_written_if_the_namespace_refuses_events(
    resources: Resources, worker: Starter
) -> None:
    client = await worker("bullmq6")
    queue = f"pay-{resources.namespace}"
    resources.apply(manifest("order", job("charge", queue)))
    resources.reaches("order", state="ACTIVE")
    # No controller empties the namespace, so the object stays, but new objects are refused.
    resources.api.kubectl("delete", "namespace", resources.namespace, "--wait=false")
    await client.work(queue, {"charge": fails_for_good("no")})
    resources.reaches("order", state="FAILED")
    assert resources.events("order") == []
