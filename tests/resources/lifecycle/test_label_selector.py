"""WATCH_LABEL_SELECTOR: operators that share a cluster, each with the objects of its own label."""

from collections.abc import Mapping
from typing import Any

from jobgroup.resource.decisions import FINALIZER
from testbed.servers.stock import fails_for_good
from testbed.support.resources import manifest, until
from testbed.support.stages import LOSE, PAY, PREFIX, UNDOS, WAIT, Stage
from testbed.support.workloads import Workloads, pool, workload
from tests.resources.looking import group_id, newest_entry, saga

SHOP, BANK = {"team": "shop"}, {"team": "bank"}


def labelled(body: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a manifest with these labels."""
    return {**body, "metadata": {**body["metadata"], "labels": labels}}


async def test_objects_without_the_label_are_not_touched(stage: Stage) -> None:
    await stage.worker()
    workloads = Workloads(stage.resources)

    def apply(name: str) -> None:
        """Create the objects of others before our own: the operator sees them first, if at all."""
        for prefix, labels in (("none", {}), ("bank", BANK), ("shop", SHOP)):
            full = f"{prefix}-{name}"
            stage.resources.apply(
                labelled(manifest(full, PAY), labels),
                workload(full),
                labelled(pool(full, "payments"), labels),
            )

    apply("listed")
    stage.operator(WATCH_LABEL_SELECTOR="team in (shop)")
    for name in ("listed", "watched"):
        if name == "watched":
            apply(name)
        stage.resources.reaches(f"shop-{name}", state="COMPLETED")
        until(lambda: "conditions" in workloads.status(f"shop-{name}"), str)  # noqa: B023
    for name in ("none-listed", "bank-listed", "none-watched", "bank-watched"):
        for kind in ("JobGroup", "WorkerPool"):
            found = workloads.get(kind, name)
            assert "finalizers" not in found["metadata"]
            assert "conditions" not in found.get("status", {})


async def test_a_late_change_of_an_object_with_another_label_is_left_to_its_operator(
    stage: Stage,
) -> None:
    worker = await stage.worker({"refund": fails_for_good("closed")})
    with stage.operator("first", WATCH_LABEL_SELECTOR="team=shop"):
        stage.resources.apply(labelled(manifest("order", PAY, LOSE, undos=UNDOS), SHOP))
        stage.resources.reaches("order", state="FAILED_COMPENSATION")
    await worker.end()
    group, cluster = (
        group_id(stage.resources, "order"),
        stage.api.user.get("Namespace", "kube-system"),
    )
    assert cluster
    owner = cluster["metadata"]["uid"]
    with stage.operator("bank", WATCH_LABEL_SELECTOR="team=bank") as bank:
        worker = await stage.worker()
        await worker.manage("payments:compensation", "retry", job=f"{group}-0-undo")
        until(
            lambda: saga(stage.store, "payments", group).get("undoneCount") == "1",
            lambda: bank.log,
        )
        newest = newest_entry(stage.store, f"{PREFIX}:_jobgroups:changed:{owner}")
        heard = f"{PREFIX}:_jobgroups:heard:{owner}"
        until(lambda: newest in stage.store.hvals(heard), lambda: bank.log)
        stage.resources.condition("order", "Compensated", "False")
    # Each release has a lease and a checkpoint of its own.
    with stage.operator("shop", WATCH_LABEL_SELECTOR="team=shop", LEASE_NAME="jobgroup-operator"):
        stage.resources.condition("order", "Compensated", "True")


async def test_an_object_whose_label_is_removed_waits_until_it_is_back(stage: Stage) -> None:
    await stage.worker()
    stage.operator(WATCH_LABEL_SELECTOR="team=shop")
    stage.resources.apply(labelled(manifest("order", WAIT), SHOP))
    stage.resources.reaches("order", state="ACTIVE")
    stage.resources.kubectl("label", "jobgroup", "order", "team-")
    stage.resources.delete("order")
    stage.resources.apply(labelled(manifest("next", PAY), SHOP))
    stage.resources.reaches("next", state="COMPLETED")
    found = stage.resources.get("order")
    assert found["metadata"]["finalizers"] == [FINALIZER]
    assert found["status"]["state"] == "ACTIVE"
    stage.resources.kubectl("label", "jobgroup", "order", "team=shop")
    stage.resources.reaches("order", state="COMPENSATING")


async def test_a_selector_that_the_api_server_refuses_ends_the_operator(stage: Stage) -> None:
    operator = stage.operator(WATCH_LABEL_SELECTOR="team=shop=bank")
    until(lambda: operator.server.code not in (None, 0), lambda: operator.log)
    assert "the API server refuses to list or watch" in operator.log
