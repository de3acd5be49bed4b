"""Each alert fires on the metrics of a real operator with the problem, and only then."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from jobgroup import JobGroups
from testbed import ROOT
from testbed.servers.operator import OperatorProcess
from testbed.servers.proxy import Proxy
from testbed.servers.stock import fails_for_good
from testbed.support.pages import Page
from testbed.support.promql import complaints, evaluate, firing, lasting
from testbed.support.resources import manifest
from testbed.support.scrapes import Scrape
from testbed.support.stages import LOSE, PAY, PREFIX, SHIP, UNDOS, WAIT, Stage
from testbed.support.waiting import wait_for
from testbed.support.workloads import pool, workload
from tests.handlers.telemetry.test_metrics import documented, unsettling
from tests.resources.outages.test_pool_outages import JUMPING
from tests.resources.outages.test_refused_status import refuse_statuses

RULES = (ROOT / "deploy/helm/files/alerts.yaml").read_text()
HOUR = 3600
DAY = 24 * HOUR
# The labels that Prometheus adds for the Service that it scrapes.
SERVICE = {"job": "jobgroup-operator", "namespace": "jobgroups"}


def told(operator: OperatorProcess, name: str, **labels: str) -> float:
    """Return the current value of a metric, or minus infinity if it is not exported."""
    value = Scrape.of(operator).value(name, **labels)
    return float("-inf") if value is None else value


def moment(*replicas: OperatorProcess) -> dict[str, Scrape]:
    """Return the current metrics of these replicas."""
    return {f"replica-{n}": Scrape.of(replica) for n, replica in enumerate(replicas)}


def reads(operator: OperatorProcess) -> None:
    """Wait until a replica exports the groups in Redis, of which there are none."""
    wait_for(lambda: told(operator, "jobgroup_groups", state="ACTIVE") == 0)


def leads(operator: OperatorProcess) -> None:
    wait_for(lambda: told(operator, "jobgroup_leader") == 1)
    reads(operator)


def refuse_leases(request: web.BaseRequest) -> web.Response | None:
    """Refuse requests for Leases, so that no replica can lead."""
    if "leases" not in request.path:
        return None
    said = {"kind": "Status", "code": 403, "message": "leases are forbidden"}
    return web.json_response(said, status=403)


def two(stage: Stage) -> tuple[OperatorProcess, OperatorProcess]:
    """Start two replicas, of which the first leads."""
    first = stage.operator("first")
    leads(first)
    second = stage.operator("second")
    reads(second)
    return first, second


def clock(stage: Stage, folder: Path) -> tuple[OperatorProcess, Path]:
    """Start an operator; return it with the file that sets how far its clock is ahead."""
    ahead = folder / "ahead"
    ahead.write_text("0")
    operator = stage.operator(script=JUMPING, SECONDS_AHEAD=str(ahead))
    leads(operator)
    return operator, ahead


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]


def test_each_alert_has_a_severity_and_a_runbook() -> None:
    anchors = Page("docs/runbooks.md").anchors
    for alert in alerts():
        name = alert["alert"]
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert alert["annotations"]["summary"].endswith(".")
        assert alert["annotations"]["runbook_url"] == f"docs/runbooks.md#{name.lower()}"
        assert name.lower() in anchors
    others = anchors - {alert["alert"].lower() for alert in alerts()}
    assert others == {"runbooks", "groups-without-a-resource"}


@pytest.mark.server
def test_prometheus_accepts_the_rules() -> None:
    assert complaints(RULES) == []
    assert complaints(RULES.replace("$value", "$valeu", 1)) != []


@pytest.mark.server
def test_the_rules_use_only_documented_metrics() -> None:
    answers = evaluate([], [alert["expr"] for alert in alerts()])
    assert {name for answer in answers for name in answer.metrics} <= documented().keys()


async def test_no_alert_fires_for_a_healthy_operator(stage: Stage) -> None:
    replicas = two(stage)
    await stage.worker()
    stage.resources.apply(
        manifest("order", PAY, SHIP),
        manifest("refused", PAY, LOSE, undos=UNDOS),
        manifest("running", WAIT),
    )
    stage.resources.reaches("order", state="COMPLETED")
    stage.resources.reaches("refused", state="FAILED")
    stage.resources.reaches("running", state="ACTIVE")
    wait_for(lambda: told(replicas[0], "jobgroup_groups", state="FAILED") == 1)
    assert firing(lasting(moment(*replicas), 2 * HOUR), RULES) == {}
    # During a handover there is no leader for a moment.
    handover = [*lasting(moment(*replicas), 600), *lasting(moment(replicas[1]), 60)]
    assert firing(handover, RULES) == {}


@pytest.mark.parametrize(
    ("state", "limit"), [("ACTIVE", DAY), ("COMPENSATING", HOUR)], ids=["active", "compensating"]
)
async def test_the_alert_for_a_stuck_group_fires(
    stage: Stage, tmp_path: Path, state: str, limit: int
) -> None:
    operator, ahead = clock(stage, tmp_path)
    client = await stage.client()
    await client.work("payments", {"lose": fails_for_good()})
    last = {"ACTIVE": WAIT, "COMPENSATING": LOSE}[state]
    stage.resources.apply(manifest("order", PAY, last, undos=UNDOS))
    stage.resources.reaches("order", state=state)
    wait_for(lambda: told(operator, "jobgroup_groups", state=state) == 1)
    before = moment(operator)
    ahead.write_text(str(limit))
    wait_for(lambda: told(operator, "jobgroup_oldest_unfinished_seconds", state=state) > limit)
    after = moment(operator)
    assert firing(lasting(before, HOUR), RULES) == {}
    assert firing([*lasting(before, HOUR), *lasting(after, 240)], RULES) == {}
    found = firing([*lasting(before, HOUR), *lasting(after, 600)], RULES)
    assert found == {"JobGroupStuck": [{**SERVICE, "state": state}]}


async def test_the_alert_for_a_failed_undo_fires(stage: Stage) -> None:
    operator = stage.operator()
    leads(operator)
    before = moment(operator)
    await stage.worker({"refund": fails_for_good("account closed")})
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS))
    stage.resources.reaches("order", state="FAILED_COMPENSATION")
    wait_for(lambda: told(operator, "jobgroup_groups", state="FAILED_COMPENSATION") == 1)
    history = [*lasting(before, HOUR), moment(operator)]
    assert firing(history[:-1], RULES) == {}
    assert firing(history, RULES) == {"JobGroupUndoFailed": [SERVICE]}
    # The alert stops when the group is deleted.
    stage.resources.delete("order")
    wait_for(lambda: told(operator, "jobgroup_groups", state="FAILED_COMPENSATION") == 0)
    assert firing([*history, moment(operator)], RULES) == {}


async def test_the_alert_for_a_failed_undo_names_the_namespace_of_the_group(stage: Stage) -> None:
    operator = stage.operator(METRICS_BY_NAMESPACE="true")
    leads(operator)
    before = moment(operator)
    await stage.worker({"refund": fails_for_good("account closed")})
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS))
    counted = {"group_namespace": stage.namespace, "state": "FAILED_COMPENSATION"}
    wait_for(lambda: told(operator, "jobgroup_namespace_groups", **counted) == 1)
    wait_for(lambda: told(operator, "jobgroup_groups", state="FAILED_COMPENSATION") == 1)
    history = [*lasting(before, HOUR), moment(operator)]
    assert firing(history[:-1], RULES) == {}
    assert firing(history, RULES) == {
        "JobGroupUndoFailed": [SERVICE],
        "JobGroupUndoFailedInNamespace": [{"namespace": stage.namespace}],
    }


async def test_the_alert_for_waiting_wake_ups_fires(stage: Stage) -> None:
    operator = stage.operator(REDIS_URL=unsettling(stage))
    leads(operator)
    before = moment(operator)
    await stage.worker()
    stage.resources.apply(manifest("order", PAY))
    wait_for(lambda: told(operator, "jobgroup_wakeup_lag_seconds") > 10)
    after = moment(operator)
    assert firing([*lasting(before, HOUR), *lasting(after, 60)], RULES) == {}
    found = firing([*lasting(before, HOUR), *lasting(after, 180)], RULES)
    assert found == {"JobGroupWakeupLag": [SERVICE]}


async def test_alerts_about_groups_fire_without_a_leader(stage: Stage) -> None:
    with Proxy(stage.api) as proxy:
        proxy.refuse = refuse_leases
        operator = stage.operator("operator", stage.api.kubeconfig("by-proxy", proxy.url))
        reads(operator)
        await stage.worker({"refund": fails_for_good("account closed")})
        async with JobGroups.connect(stage.redis.url, PREFIX) as groups:
            await groups.add_group("order", [PAY, LOSE], UNDOS)
            wait_for(lambda: told(operator, "jobgroup_groups", state="FAILED_COMPENSATION") == 1)
        undone = moment(operator)
        operator.server.kill()
        blind = stage.operator(
            "blind", stage.api.kubeconfig("by-proxy", proxy.url), REDIS_URL=unsettling(stage)
        )
        async with JobGroups.connect(stage.redis.url, PREFIX) as groups:
            await groups.add_group("order", [PAY])
            wait_for(lambda: told(blind, "jobgroup_wakeup_lag_seconds") > 10)
        waiting = moment(blind)
    assert firing(lasting(undone, HOUR), RULES) == {
        "JobGroupNoLeader": [SERVICE],
        "JobGroupUndoFailed": [SERVICE],
    }
    assert firing(lasting(waiting, HOUR), RULES).keys() == {
        *("JobGroupNoLeader", "JobGroupUndoFailed", "JobGroupWakeupLag")
    }


async def test_the_alert_for_an_unreachable_redis_fires(stage: Stage) -> None:
    replicas = two(stage)
    before = moment(*replicas)
    stage.redis.kill()
    for replica in replicas:
        wait_for(lambda: told(replica, "jobgroup_redis_up") == 0)  # noqa: B023 (called at once)
    after = moment(*replicas)
    assert firing([*lasting(before, HOUR), *lasting(after, 60)], RULES) == {}
    found = firing([*lasting(before, HOUR), *lasting(after, 180)], RULES)
    assert found == {"JobGroupRedisUnreachable": [SERVICE]}


async def test_the_alert_for_a_refused_status_fires(stage: Stage) -> None:
    def count(operator: OperatorProcess) -> float:
        return told(operator, "jobgroup_status_refused_total", kind="WorkerPool", code="422")

    with Proxy(stage.api) as proxy:
        proxy.refuse = refuse_statuses
        operator = stage.operator("operator", stage.api.kubeconfig("by-proxy", proxy.url))
        leads(operator)
        moments = [moment(operator)]
        assert count(operator) == 0
        stage.resources.apply(pool("undoers", "payments"))
        for number in range(1, 8):
            wait_for(lambda: count(operator) >= number)  # noqa: B023 (called at once)
            moments.append(moment(operator))
    before = lasting(moments[0], HOUR)
    during = [each for scrape in moments[1:] for each in lasting(scrape, 60)]
    assert firing(before, RULES) == {}
    assert firing([*before, *during[:3]], RULES) == {}
    found = firing([*before, *during], RULES)
    assert found == {"JobGroupStatusRefused": [{**SERVICE, "kind": "WorkerPool"}]}
    assert firing([*before, *during, *lasting(moments[-1], HOUR)], RULES) == {}


async def test_the_alert_for_refused_requests_fires(stage: Stage) -> None:
    refused = {"verb": "patch", "resource": "deployments/scale", "code": "403"}

    def refuse(request: web.BaseRequest) -> web.Response | None:
        if not request.path.endswith("/scale"):
            return None
        said = {"kind": "Status", "code": 403, "message": "a policy refuses it"}
        return web.json_response(said, status=403)

    def count(operator: OperatorProcess) -> float:
        return told(operator, "jobgroup_api_refused_total", **refused)

    with Proxy(stage.api) as proxy:
        proxy.refuse = refuse
        operator = stage.operator("operator", stage.api.kubeconfig("by-proxy", proxy.url))
        leads(operator)
        before = lasting(moment(operator), HOUR)
        assert count(operator) == 0
        stage.resources.apply(workload("undoers"), pool("undoers", "payments", minReplicas=1))
        wait_for(lambda: count(operator) > 0)
        after = moment(operator)
    assert firing(before, RULES) == {}
    assert firing([*before, *lasting(after, 240)], RULES) == {}
    found = firing([*before, *lasting(after, 420)], RULES)
    assert found == {"JobGroupRequestsRefused": [{**SERVICE, **refused}]}
    assert firing([*before, *lasting(after, HOUR)], RULES) == {}


async def test_the_alert_for_a_missing_leader_fires_without_permission_to_lead(
    stage: Stage,
) -> None:
    with Proxy(stage.api) as proxy:
        proxy.refuse = refuse_leases
        operator = stage.operator("operator", stage.api.kubeconfig("by-proxy", proxy.url))
        wait_for(lambda: "cannot acquire the lease" in operator.log)
        wait_for(lambda: told(operator, "jobgroup_redis_up") == 1)
        waiting = moment(operator)
    assert firing(lasting(waiting, 60), RULES) == {}
    assert firing(lasting(waiting, 180), RULES) == {"JobGroupNoLeader": [SERVICE]}


async def test_the_alert_for_a_missing_leader_fires_without_replicas(stage: Stage) -> None:
    operator = stage.operator()
    leads(operator)
    before = moment(operator)
    operator.server.kill()
    assert operator.probe("/metrics")[0] == 0
    # Prometheus looks back five minutes for the last sample.
    gone = [*lasting(before, HOUR), *lasting({}, 600)]
    assert firing(gone, RULES) == {"JobGroupNoLeader": [SERVICE]}
    # After a day the series of the old leader have ended, but the alert still fires.
    assert firing([*gone, *lasting({}, DAY)], RULES) == {"JobGroupNoLeader": [{}]}


async def test_the_alert_for_a_missing_leader_fires_beside_a_healthy_operator(stage: Stage) -> None:
    operator = stage.operator()
    leads(operator)
    (well,) = moment(operator).values()
    both, other = {"replica": well, "elsewhere/replica": well}, {"elsewhere/replica": well}
    assert firing(lasting(both, HOUR), RULES) == {}
    gone = [*lasting(both, HOUR), *lasting(other, 600)]
    assert firing(gone, RULES) == {"JobGroupNoLeader": [SERVICE]}
    # After a day without replicas, the alert stops: the removal was intended.
    assert firing([*gone, *lasting(other, DAY)], RULES) == {}
