"""WorkerPools and what they scale, on a real API server: manifests in one line, and a stage."""

from typing import Any

from testbed.resources import Resources, until


def workload(name: str, replicas: int = 0, kind: str = "Deployment") -> dict[str, Any]:
    """Spell a workload of no particular image."""
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
    """Spell a WorkerPool, by default of the workload of its own name."""
    return {
        "apiVersion": "jobgroups.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": {"queueName": queue, "scaleTargetRef": {"name": target or name}, **spec},
    }


def autoscaler(name: str, target: str) -> dict[str, Any]:
    """Spell a HorizontalPodAutoscaler."""
    of = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": of, "maxReplicas": 3},
    }


class Workloads:
    """The workloads and pools of one namespace."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.apply = resources.apply
        self._calms = 0

    def queue(self, name: str) -> str:
        """Name a queue that no other test has."""
        return f"{self.resources.namespace}-{name}"

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object; it must be there."""
        found = self.resources.ask(kind, f"/{name}")
        assert found, f"there is no {kind} {name}"
        return found

    def status(self, name: str) -> dict[str, Any]:
        """Return what a pool's status says."""
        return dict(self.get("workerpool", name).get("status") or {})

    def replicas(self, name: str, kind: str = "deployment") -> int:
        """Return how many replicas a workload is to have."""
        return int(self.get(kind, name)["spec"]["replicas"])

    def changes(self, name: str, kind: str = "deployment") -> int:
        """Return how often a workload was changed since it was made."""
        return int(self.get(kind, name)["metadata"]["generation"]) - 1

    def scales_to(self, name: str, replicas: int, kind: str = "deployment") -> None:
        """Wait until a workload is to have so many."""
        until(
            lambda: self.replicas(name, kind) == replicas,
            lambda: f"{self.replicas(name, kind)} replicas; {self.get('workerpool', name)}",
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
        """Wait until a pool gives this reason for what it does."""

        def given() -> bool:
            return any(c["message"] == message for c in self.status(name).get("conditions", []))

        until(given, lambda: f"never said {message}, but {self.status(name)}")

    def a_cooldown_passes(self) -> None:
        """Wait until a pool with nothing to do and a cooldown of a second has shrunk."""
        self._calms += 1
        name = f"calm-{self._calms}"
        self.apply(workload(name, 1), pool(name, self.queue(name), cooldownSeconds=1))
        self.scales_to(name, 0)
