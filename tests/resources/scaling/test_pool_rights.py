"""A WorkerPool is a right to scale: its ceiling, and workloads that refuse or must opt in."""

import json
from typing import Any

import pytest

from testbed.servers.apiserver import KubectlError
from testbed.support.resources import Resources
from testbed.support.stages import Stage
from testbed.support.workloads import Workloads, pool, workload

SCALABLE = "jobgroups.dev/scalable"


@pytest.fixture
def workloads(resources: Resources) -> Workloads:
    return Workloads(resources)


def annotated(name: str, replicas: int, value: str | None) -> dict[str, Any]:
    """Return the manifest of a workload with the annotation, or with none."""
    made = workload(name, replicas)
    made["metadata"]["annotations"] = {SCALABLE: value}
    return made


def may_make_pools(namespace: str) -> list[dict[str, Any]]:
    """Return an account that may create WorkerPools in a namespace, and nothing else."""
    group, head = "rbac.authorization.k8s.io", {"metadata": {"name": "tenant"}}
    rule = {
        "apiGroups": ["jobgroups.dev"],
        "resources": ["workerpools"],
        "verbs": ["get", "create", "update"],
    }
    who = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
    return [
        {**head, "apiVersion": "v1", "kind": "ServiceAccount"},
        {**head, "apiVersion": f"{group}/v1", "kind": "Role", "rules": [rule]},
        {
            **head,
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "tenant"},
            "subjects": [who],
        },
    ]


def test_who_may_make_pools_may_scale_up_to_the_ceiling(workloads: Workloads) -> None:
    api, namespace = workloads.resources.api, workloads.resources.namespace
    workloads.apply(*may_make_pools(namespace), workload("shop", 3), annotated("safe", 3, "false"))
    tenant = api.identity(namespace, "tenant")
    with pytest.raises(KubectlError, match="is forbidden"):
        api.kubectl("-n", namespace, "scale", "deployment/shop", "--replicas=9000", identity=tenant)
    for name in ("shop", "safe"):
        bounds: dict[str, Any] = {"minReplicas": 9000, "maxReplicas": 9000}
        made = json.dumps(pool(name, workloads.queue(name), **bounds))
        api.kubectl("-n", namespace, "create", "-f", "-", stdin=made, identity=tenant)
    workloads.scales_to("shop", 100)
    capped = "no job needs a worker, minReplicas is 9000; the operator allows at most 100 replicas"
    assert workloads.last_scale("shop")["reason"] == capped
    assert capped in workloads.says("shop", "Ready", "True", "QueueNeverSeen")
    assert workloads.says("safe", "Stalled", "True", "NotScalable")
    assert workloads.changes("safe") == 0


def test_a_workload_that_refuses_is_not_scaled_until_it_allows_it(workloads: Workloads) -> None:
    queue = workloads.queue("locked")
    workloads.apply(annotated("locked", 3, "false"), pool("locked", queue, minReplicas=5))
    said = workloads.says("locked", "Stalled", "True", "NotScalable")
    assert said == (
        'Deployment locked is not scaled: its annotation jobgroups.dev/scalable is "false",'
        ' not "true"'
    )
    workloads.says("locked", "ScalingActive", "False", "NotScalable")
    # Nor does the pool report the replicas of the workload as its own.
    assert workloads.status("locked").keys() & {"replicas", "desiredReplicas"} == set()
    assert workloads.changes("locked") == 0
    workloads.resources.kubectl("annotate", "deployment", "locked", f"{SCALABLE}-")
    workloads.scales_to("locked", 5)
    workloads.says("locked", "Ready", "True", "QueueNeverSeen")


def test_a_workload_that_refuses_later_keeps_its_replicas(workloads: Workloads) -> None:
    queue = workloads.queue("closed")
    workloads.apply(workload("closed"), pool("closed", queue, minReplicas=1))
    workloads.scales_to("closed", 1)
    workloads.settles("closed")
    workloads.resources.kubectl("annotate", "deployment", "closed", f"{SCALABLE}=false")
    workloads.apply(pool("closed", queue, minReplicas=2))
    workloads.says("closed", "Stalled", "True", "NotScalable")
    assert workloads.replicas("closed") == 1


async def test_workloads_must_opt_in_if_the_operator_requires_it(stage: Stage) -> None:
    stage.operator(POOL_OPT_IN="true", POOL_MAX_REPLICAS="2")
    workloads = Workloads(stage.resources)
    workloads.apply(workload("silent", 1), pool("silent", "silent", minReplicas=5))
    workloads.apply(annotated("willing", 1, "true"), pool("willing", "willing", minReplicas=5))
    said = workloads.says("silent", "Stalled", "True", "NotScalable")
    assert said == (
        "Deployment silent is not scaled: the operator requires the annotation"
        ' jobgroups.dev/scalable: "true" to scale it'
    )
    workloads.scales_to("willing", 2)
    assert workloads.changes("silent") == 0
    stage.resources.kubectl("annotate", "deployment", "silent", f"{SCALABLE}=true")
    workloads.scales_to("silent", 2)
