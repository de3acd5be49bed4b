"""A status that the API server refuses is logged as an error, counted, and retried."""

from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from testbed.servers.operator import OperatorProcess
from testbed.servers.proxy import Proxy, nothing
from testbed.support.resources import manifest, until
from testbed.support.scrapes import Scrape
from testbed.support.stages import PREFIX, WAIT, Stage
from testbed.support.waiting import wait_for
from testbed.support.workloads import Workloads, pool, workload

OBJECTS: dict[str, dict[str, Any]] = {
    "JobGroup": manifest("order", WAIT),
    "WorkerPool": pool("order", "orders", minReplicas=1),
}


def refuse_statuses(request: web.BaseRequest) -> web.Response | None:
    """Answer as the API server does if a status does not match the schema of the CRD."""
    if not request.path.endswith("/status"):
        return None
    said = {"kind": "Status", "code": 422, "message": "status.replicas: Invalid value: 20000"}
    return web.json_response(said, status=422)


@pytest.fixture
def proxy(stage: Stage) -> Iterator[Proxy]:
    with Proxy(stage.api) as proxy:
        proxy.refuse = refuse_statuses
        yield proxy


def refusals(operator: OperatorProcess, kind: str) -> float:
    labels = {"kind": kind, "code": "422"}
    return Scrape.of(operator).value("jobgroup_status_refused_total", **labels) or 0


@pytest.mark.parametrize("kind", OBJECTS)
async def test_a_refused_status_is_an_error_in_the_log_and_a_metric(
    stage: Stage, proxy: Proxy, kind: str
) -> None:
    operator = stage.operator("operator", stage.api.kubeconfig("by-proxy", proxy.url))
    workloads = Workloads(stage.resources)
    workloads.apply(workload("order"), OBJECTS[kind])
    # It is tried again.
    wait_for(lambda: refusals(operator, kind) > 2)
    (first, *_) = [line for line in operator.log.splitlines() if "refused the status" in line]
    assert "[ERROR" in first
    assert f"[{stage.namespace}/order]" in first
    said = f"refused the status of {kind} order: 422: status.replicas: Invalid value: 20000;"
    assert said in first
    # The workload is scaled, and the jobs are created nevertheless.
    if kind == "WorkerPool":
        workloads.scales_to("order", 1)
    else:
        wait_for(lambda: stage.store.llen(f"{PREFIX}:waiting:wait") == 1)
        refusal = "422: status.replicas: Invalid value: 20000"
        message = f"the API server refuses the status, so it is out of date: {refusal}"
        assert stage.resources.events("order") == [("Warning", "StatusRefused", message)]
    # The status is written as soon as it is accepted.
    proxy.refuse = nothing
    until(
        lambda: "conditions" in (stage.resources.user.get(kind, "order") or {}).get("status", {}),
        lambda: operator.log,
    )
