"""WorkerPools and workloads on a real API server: manifests in one line, and helpers."""

import json
from collections.abc import Mapping
from typing import Any

from testbed.support.resources import Resources, until


def workload(name: str, replicas: int = 0, kind: str = "Deployment") -> dict[str, Any]:
    """Return the manifest of a workload."""
    labels = {"app": name}
    pod = {"containers": [{"name": "worker", "image": "example/worker"}]}
    spec: dict[str, Any] = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def pool(name: str, queue: str, target: str = "", **spec: Any) -> dict[str, Any]:
    """Return the manifest of a WorkerPool, by default for the workload of the same name."""
    return {
        "apiVersion": "jobgroups.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": {"queueName": queue, "scaleTargetRef": {"name": target or name}, **spec},
    }


def autoscaler(name: str, target: str) -> dict[str, Any]:
    """Return the manifest of a HorizontalPodAutoscaler."""
    of = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": of, "maxReplicas": 3},
    }


def is_rolled_out(workload: Mapping[str, Any]) -> bool:
    """Return whether all pods of a Deployment or StatefulSet are of its newest spec, and ready."""
    wanted, status = workload["spec"]["replicas"], workload.get("status") or {}
    counts = {status.get(field, 0) for field in ("replicas", "updatedReplicas", "readyReplicas")}
    seen = status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
    return seen and counts == {wanted}


class Workloads:
    """The workloads and pools of one namespace."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.apply = resources.apply
        self._calms = 0

    def queue(self, name: str) -> str:
        """Return a unique queue name."""
        return f"{self.resources.namespace}-{name}"

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object, which must exist."""
        found = self.resources.user.get(kind, name)
        assert found, f"there is no {kind} {name}"
        return found

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a pool."""
        return dict(self.get("WorkerPool", name).get("status") or {})

    def replicas(self, name: str, kind: str = "Deployment") -> int:
        """Return the replicas in the spec of a workload."""
        return int(self.get(kind, name)["spec"]["replicas"])

    def changes(self, name: str, kind: str = "Deployment") -> int:
        """Return how often the spec of a workload has changed."""
        return int(self.get(kind, name)["metadata"]["generation"]) - 1

    def scales_to(self, name: str, replicas: int, kind: str = "Deployment") -> None:
        """Wait until the spec of a workload has this number of replicas."""
        until(
            lambda: self.replicas(name, kind) == replicas,
            lambda: f"{self.replicas(name, kind)} replicas; {self.get('WorkerPool', name)}",
        )

    def settles(self, name: str) -> None:
        """Set all replicas of a Deployment ready, as controllers do, and wait until a pool knows.

        Afterwards the pool of the same name has no reason to read the workload again.
        """
        count = self.replicas(name)
        ready = {"status": {"replicas": count, "readyReplicas": count}}
        to = ["--subresource=status", "--type=merge", "-p", json.dumps(ready)]
        self.resources.kubectl("patch", "deployment", name, *to)
        until(
            lambda: self.status(name).get("readyReplicas") == count,
            lambda: f"not {count} ready replicas, but {self.status(name)}",
        )

    def says(self, name: str, kind: str, status: str, reason: str) -> str:
        """Wait until a pool has a condition, and return its message."""
        found = ""

        def holds() -> bool:
            nonlocal found
            for each in self.status(name).get("conditions", []):
                if (each["type"], each["status"], each["reason"]) == (kind, status, reason):
                    found = each["message"]
                    return True
            return False

        until(holds, lambda: f"never {kind}={status} {reason}, but {self.status(name)}")
        return found

    def explains(self, name: str, message: str) -> None:
        """Wait until a condition of a pool has this message."""

        def given() -> bool:
            return any(c["message"] == message for c in self.status(name).get("conditions", []))

        until(given, lambda: f"never said {message}, but {self.status(name)}")

    def last_scale(self, name: str) -> dict[str, Any]:
        """Wait until a pool reports a scaling, and return it: it is written after the scaling."""
        until(lambda: "lastScale" in self.status(name), lambda: f"none in {self.status(name)}")
        return dict(self.status(name)["lastScale"])

    def a_cooldown_passes(self) -> None:
        """Wait until an idle pool with a cooldown of a second has scaled down."""
        self._calms += 1
        name = f"calm-{self._calms}"
        self.apply(workload(name, 1), pool(name, self.queue(name), cooldownSeconds=1))
        self.scales_to(name, 0)
