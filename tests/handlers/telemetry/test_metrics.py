"""The metrics of a real operator, with groups that real workers ran."""

import re
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from handlers.kube.refs import Ref
from handlers.telemetry import state
from handlers.telemetry.metrics import Metrics
from handlers.telemetry.redis_probe import RedisProbe
from handlers.telemetry.state import StateCollector
from jobgroup import JobGroups, Store, connect
from jobgroup.driver import Counters
from jobgroup.model.snapshot import STATES, Totals
from testbed import ROOT
from testbed.servers.operator import OperatorProcess
from testbed.servers.proxy import Proxy, is_watch
from testbed.servers.stock import fails_for_good
from testbed.support.resources import manifest
from testbed.support.sagas import job
from testbed.support.scrapes import Scrape
from testbed.support.stages import LOSE, PAY, PREFIX, SHIP, UNDOS, WAIT, Stage
from testbed.support.waiting import eventually, wait_for
from testbed.support.workloads import Workloads, pool, workload
from tests.resources.fixtures import Shared

GROUPS = {
    "ACTIVE": 1,
    "COMPENSATING": 1,
    "COMPLETED": 2,
    "FAILED": 1,
    "FAILED_COMPENSATION": 1,
}
DOCS = ROOT / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\| (.+) \|$", re.MULTILINE)
REFUSED = {"refund": fails_for_good("account closed")}


def leads(operator: OperatorProcess) -> None:
    wait_for(lambda: Scrape.of(operator).value("jobgroup_leader") == 1)


async def every_state(stage: Stage) -> None:
    """Run groups until each state has one, and COMPLETED two."""
    apply, reaches = stage.resources.apply, stage.resources.reaches
    worker = await stage.worker()
    for name in ("first", "second"):
        apply(manifest(name, PAY, SHIP))
        reaches(name, state="COMPLETED")
    apply(manifest("undone", PAY, LOSE, undos=UNDOS))
    reaches("undone", state="FAILED")
    await worker.end()
    unlucky = await stage.worker(REFUSED)
    apply(manifest("left", PAY, LOSE, undos={"pay": {"name": "refund", "opts": {"attempts": 1}}}))
    reaches("left", state="FAILED_COMPENSATION")
    apply(
        manifest("running", WAIT), manifest("undoing", PAY, LOSE, undos={"pay": {"name": "wait"}})
    )
    reaches("undoing", state="COMPENSATING")
    reaches("running", state="ACTIVE")
    await unlucky.heard("started", name="wait")


def counted(operator: OperatorProcess) -> None:
    wait_for(lambda: Scrape.of(operator).by("state", "jobgroup_groups") == GROUPS)


async def test_groups_transitions_durations_and_undos_are_counted(stage: Stage) -> None:
    operator = stage.operator()
    leads(operator)
    await every_state(stage)
    counted(operator)
    scrape = Scrape.of(operator)
    assert scrape.by("state", "jobgroup_transitions_total") == {
        "ACTIVE": 6,
        "COMPENSATING": 3,
        "COMPLETED": 2,
        "FAILED": 1,
        "FAILED_COMPENSATION": 1,
    }
    outcomes = {"completed": 1, "failed": 1, "resolved": 0}
    assert scrape.by("outcome", "jobgroup_undos_total") == outcomes
    durations = scrape.by("state", "jobgroup_duration_seconds_count")
    assert durations == {"COMPLETED": 2, "FAILED": 1, "FAILED_COMPENSATION": 1}
    assert all(scrape.by("state", "jobgroup_duration_seconds_sum").values())
    ages = scrape.by("state", "jobgroup_oldest_unfinished_seconds")
    assert ages.keys() == {"ACTIVE", "COMPENSATING"}
    assert all(ages.values())
    assert scrape.value("jobgroup_resync_repairs_total") == 0
    assert scrape.value("jobgroup_redis_up") == 1
    ran = scrape.by("script", "jobgroup_script_seconds_count")
    assert all(ran[name] for name in ("create_groups", "settle_wakeups", "read_totals"))
    assert scrape.by("script", "jobgroup_script_seconds_sum")["settle_wakeups"] > 0
    assert ran["remove_group"] == 0
    # The driver waits for wake-ups: such a call is counted, but not its time.
    calls = scrape.by("script", "jobgroup_script_calls_total")
    assert calls["settle_wakeups"] > ran["settle_wakeups"]
    assert calls["remove_group"] == 0
    assert not any("first" in str(key) or stage.namespace in str(key) for key in scrape.samples)


async def test_gauges_are_right_after_a_restart(stage: Stage) -> None:
    first = stage.operator("first")
    leads(first)
    await every_state(stage)
    counted(first)
    before = Scrape.of(first).by("state", "jobgroup_oldest_unfinished_seconds")
    first.server.stop()
    second = stage.operator("second")
    counted(second)
    scrape = Scrape.of(second)
    after = scrape.by("state", "jobgroup_oldest_unfinished_seconds")
    assert all(after[state] >= before[state] for state in before)
    assert not any(scrape.by("state", "jobgroup_transitions_total").values())
    assert not any(scrape.by("outcome", "jobgroup_undos_total").values())


async def test_writes_are_counted_by_what_was_written(stage: Stage) -> None:
    operator = stage.operator()
    await stage.worker()
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS, ttlSecondsAfterFinished=0))
    stage.resources.goes("order")
    wait_for(lambda: Scrape.of(operator).by("what", "jobgroup_api_writes_total")["lease"] > 1)
    writes = Scrape.of(operator).by("what", "jobgroup_api_writes_total")
    assert writes.pop("scale") == 0
    assert writes.keys() == {"delete", "event", "lease", "metadata", "status"}
    assert all(writes.values())


async def test_a_replica_that_does_not_lead_exports_what_it_reads_from_redis(stage: Stage) -> None:
    first = stage.operator("first")
    leads(first)
    second = stage.operator("second", METRICS_BY_NAMESPACE="true")
    wait_for(lambda: "this replica waits" in second.log)
    stage.resources.apply(manifest("order", WAIT))
    wait_for(lambda: Scrape.of(first).value("jobgroup_groups", state="ACTIVE") == 1)
    wait_for(lambda: Scrape.of(second).value("jobgroup_groups", state="ACTIVE") == 1)
    scrape = Scrape.of(second)
    assert scrape.value("jobgroup_leader") == 0
    assert scrape.value("jobgroup_reviewing") == 0
    assert Scrape.of(first).value("jobgroup_reviewing") == 1
    assert scrape.value("jobgroup_wakeups") == 0
    assert scrape.value("jobgroup_watch_age_seconds") is None
    assert scrape.by("group_namespace", "jobgroup_namespace_groups") == {}
    assert scrape.kinds == Scrape.of(first).kinds


async def test_no_groups_are_exported_while_redis_is_down(stage: Stage) -> None:
    operator = stage.operator()
    wait_for(lambda: Scrape.of(operator).value("jobgroup_groups", state="ACTIVE") == 0)
    stage.redis.kill()
    wait_for(lambda: Scrape.of(operator).value("jobgroup_redis_up") == 0)
    wait_for(lambda: Scrape.of(operator).by("state", "jobgroup_groups") == {})
    assert Scrape.of(operator).value("jobgroup_wakeup_lag_seconds") is None


async def test_repairs_of_a_resync_are_counted(stage: Stage) -> None:
    async with JobGroups.connect(stage.redis.url, PREFIX) as groups:
        order = await groups.add_group("order", [job("pay"), job("ship", "shipping")])
        # Remove the job as a person would: this causes no wake-up.
        lost, redis = order.jobs[0], groups.store.redis
        await redis.lrem(f"{PREFIX}:payments:wait", 1, lost.job_id)
        await redis.srem(f"{PREFIX}:_jobgroups:{order.group_id}:dependencies", lost.job_key)
        await redis.delete(lost.job_key)
        operator = stage.operator()

        async def repaired() -> bool:
            return Scrape.of(operator).value("jobgroup_resync_repairs_total") == 1

        await eventually(repaired)


def unsettling(stage: Stage) -> str:
    """Return the URL of a Redis user who may not remove list entries: no group can be settled."""
    rights = ["+@all", "-lrem"]
    stage.store.acl_setuser(
        "reader", enabled=True, nopass=True, commands=rights, keys=["*"], channels=["*"]
    )
    return stage.redis.url.replace("redis://", "redis://reader:@")


async def test_the_lag_of_the_wake_up_list_grows(stage: Stage) -> None:
    operator = stage.operator(REDIS_URL=unsettling(stage))
    await stage.worker()
    stage.resources.apply(manifest("order", PAY))
    wait_for(lambda: Scrape.of(operator).value("jobgroup_wakeups") == 1)
    seen = Scrape.of(operator).value("jobgroup_wakeup_lag_seconds")
    assert seen is not None
    wait_for(lambda: (Scrape.of(operator).value("jobgroup_wakeup_lag_seconds") or 0) > seen)


@pytest.mark.parametrize(
    "changed",
    [manifest("order", WAIT), pool("undoers", "payments")],
    ids=["JobGroup", "WorkerPool"],
)
async def test_a_watch_event_resets_the_watch_age(stage: Stage, changed: dict[str, Any]) -> None:
    operator = stage.operator()
    leads(operator)
    # Without events, the age grows.
    wait_for(lambda: (Scrape.of(operator).value("jobgroup_watch_age_seconds") or 0) > 3)
    stage.resources.apply(changed)
    wait_for(lambda: (Scrape.of(operator).value("jobgroup_watch_age_seconds") or 3) < 3)


async def test_pools_are_exported_while_they_exist(stage: Stage) -> None:
    operator = stage.operator()
    workloads = Workloads(stage.resources)
    workloads.apply(workload("undoers"), pool("undoers", "payments", jobsPerReplica=1))
    client = await stage.client()
    for _ in range(3):
        await client.add("payments", "pay")
    workloads.scales_to("undoers", 3)
    labels = {"pool_namespace": stage.namespace, "pool": "undoers"}
    for name in ("jobgroup_pool_backlog", "jobgroup_pool_replicas"):
        wait_for(lambda: Scrape.of(operator).value(name, **labels) == 3)  # noqa: B023 (called at once)
    stage.resources.kubectl("delete", "workerpool", "undoers")
    for name in ("jobgroup_pool_backlog", "jobgroup_pool_replicas"):
        wait_for(lambda: Scrape.of(operator).value(name, **labels) is None)  # noqa: B023 (called at once)


def by_namespace(operator: OperatorProcess) -> dict[tuple[str, str], float]:
    """Return the numbers of JobGroups by namespace and state, without zeros."""
    found = Scrape.of(operator).samples
    return {
        (labels["group_namespace"], labels["state"]): value
        for (name, pairs), value in found.items()
        if name == "jobgroup_namespace_groups" and value and (labels := dict(pairs))
    }


async def test_groups_are_counted_by_namespace_on_request(stage: Stage) -> None:
    here = stage.namespace
    operator = stage.operator("first", METRICS_BY_NAMESPACE="true")
    leads(operator)
    await every_state(stage)
    counts = {(here, state): number for state, number in GROUPS.items()}
    wait_for(lambda: by_namespace(operator) == counts)
    stage.resources.delete("left")
    del counts[here, "FAILED_COMPENSATION"]
    wait_for(lambda: by_namespace(operator) == counts)
    operator.server.stop()
    second = stage.operator("second", METRICS_BY_NAMESPACE="true")
    wait_for(lambda: by_namespace(second) == counts)


async def test_groups_deleted_while_nothing_is_watched_are_not_counted(
    stage: Stage, proxy: Proxy
) -> None:
    kubeconfig = stage.api.kubeconfig("by-proxy", proxy.url)
    operator = stage.operator("operator", kubeconfig, METRICS_BY_NAMESPACE="true")
    await stage.worker()
    for name in ("first", "second"):
        stage.resources.apply(manifest(name, PAY))
        stage.resources.reaches(name, state="COMPLETED")
    both = {(stage.namespace, "COMPLETED"): 2.0}
    wait_for(lambda: by_namespace(operator) == both)
    proxy.refuse = lambda request: web.Response(status=503) if "jobgroups" in request.path else None
    proxy.cut_watches()
    wait_for(lambda: len(proxy.refused) > 0)
    stage.resources.user.patch("JobGroup", "first", {"metadata": {"finalizers": None}})
    stage.resources.delete("first")
    stage.resources.goes("first")
    assert by_namespace(operator) == both
    gone = {"kind": "Status", "apiVersion": "v1", "code": 410, "message": "expired"}
    left = [1]

    def expire(request: web.BaseRequest) -> web.Response | None:
        expired = is_watch(request) and left and left.pop()
        return web.json_response(gone, status=410) if expired else None

    proxy.refuse = expire
    wait_for(lambda: by_namespace(operator) == {(stage.namespace, "COMPLETED"): 1.0})


def test_namespaces_beyond_a_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_NAMESPACES", 2)
    counts = {"a": {"ACTIVE": 1}, "b": {"FAILED": 2}}
    assert state.bounded(counts) == counts
    more = {**counts, "c": {"ACTIVE": 3, "FAILED": 1}, "d": {"ACTIVE": 4}}
    assert state.bounded(more) == {**counts, "_other": {"ACTIVE": 7, "FAILED": 1}}


def documented() -> dict[str, tuple[str, set[str]]]:
    """Return type and labels of each metric in the table."""
    rows = ROW.findall(DOCS.read_text())
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}


def test_the_table_in_the_docs_lists_every_metric() -> None:
    registry = CollectorRegistry(auto_describe=True)
    metrics = Metrics(registry)
    redis = RedisProbe(Store(connect("redis://unused"), PREFIX), "unused")
    redis.totals = Totals(dict.fromkeys(STATES, 1), {}, 0, 0)
    pools = [(Ref("shop", "undoers", "u"), {"backlog": 1, "replicas": 1})]
    registry.register(
        StateCollector(
            is_leader=lambda: True,
            is_reviewing=lambda: True,
            writes={},
            refused={},
            refusals={},
            watch_age=metrics.watch_age,
            driver=Counters(),
            pools=lambda: pools,
            redis=redis,
            namespaces=lambda: {"shop": {"ACTIVE": 1}},
            left=lambda: 1,
        )
    )
    told = {}
    for family in registry.collect():
        if not family.name.startswith("process_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels}
            told[name] = (family.type, labels - {"le"})
    assert documented() == told


async def test_a_scrape_contains_every_metric_of_the_table(shared: Shared) -> None:
    scrape = Scrape.of(shared.operator)
    told = {
        f"{name}_total" if kind == "counter" else name: kind
        for name, kind in scrape.kinds.items()
        if not name.startswith("process_")
    }
    assert told == {name: kind for name, (kind, _) in documented().items()}
    assert scrape.kinds["process_resident_memory_bytes"] == "gauge"
