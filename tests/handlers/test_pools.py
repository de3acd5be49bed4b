"""A WorkerPool: workers are there when jobs appear, and go only when their queue is quiet."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from testbed.resources import Resources, manifest, until
from testbed.sagas import job, undo
from testbed.stock import StockClient, fails_for_good, hangs

Worker = Callable[..., Awaitable[StockClient]]


def deployment(name: str, replicas: int = 0) -> dict[str, Any]:
    labels = {"app": name}
    pod = {"containers": [{"name": "worker", "image": "example/worker"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def pool(name: str, queue: str, target: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobgroups.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": {"queueName": queue, "scaleTargetRef": {"name": target}, **spec},
    }


class Workloads:
    """The Deployments and pools of one namespace."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.resources.kubectl("get", kind, name, "-o", "json"))
        return found

    def replicas(self, name: str) -> int:
        return int(self.get("deployment", name)["spec"]["replicas"])

    def scales_to(self, name: str, replicas: int) -> None:
        until(lambda: self.replicas(name) == replicas, lambda: f"{self.replicas(name)} replicas")

    def condition(self, name: str, kind: str) -> tuple[str, str, str]:
        for each in self.get("workerpool", name).get("status", {}).get("conditions", []):
            if each["type"] == kind:
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def says(self, name: str, kind: str, status: str, reason: str) -> str:
        until(
            lambda: self.condition(name, kind)[:2] == (status, reason),
            lambda: f"{self.get('workerpool', name).get('status')}",
        )
        return self.condition(name, kind)[2]


async def test_undos_wake_a_deployment_and_it_sleeps_again(
    resources: Resources, worker: Worker
) -> None:
    workloads = Workloads(resources)
    queue = f"pay-{resources.namespace}"
    resources.apply(
        deployment("undoers"),
        pool("undoers", f"{queue}:compensation", "undoers", cooldownSeconds=1, jobsPerReplica=1),
    )
    workloads.says("undoers", "Ready", "True", "Counting")
    client = await worker()
    await client.work(queue, {"refuse": fails_for_good()})
    jobs = [job(f"charge-{n}", queue) for n in range(3)]
    undos = {each["name"]: undo("refund") for each in jobs}
    resources.apply(manifest("order", *jobs, job("refuse", queue, delay=1500), undos=undos))
    workloads.scales_to("undoers", 3)
    status = workloads.get("workerpool", "undoers")["status"]
    assert (status["desiredReplicas"], status["replicas"]) == (3, 3)
    assert status["lastScale"]["reason"] == "3 jobs, 1 a replica"

    await client.work(f"{queue}:compensation", {"refund": hangs()}, concurrency=3)
    resources.reaches("order", state="COMPENSATING", undone="0/3")
    await client.heard("started", name="refund")
    await client.release("refund")
    resources.reaches("order", state="FAILED", undone="3/3")
    workloads.scales_to("undoers", 0)
    events = resources.events("undoers")
    assert ("Normal", "Scaled", "from 0 to 3: 3 jobs, 1 a replica") in events
    assert ("Normal", "Scaled", "from 3 to 0: nothing to do") in events
