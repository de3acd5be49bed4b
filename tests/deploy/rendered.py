"""Values for the chart, and functions that find objects in what helm renders."""

from collections.abc import Iterator
from typing import Any

from testbed.support.chart import NAMESPACE, Manifest, Values, named

BUNDLED: Values = {"redis": {"bundled": {"enabled": True}}}
WATCHED: Values = {"watchNamespaces": ["shop", "bank"]}
EVERYTHING: Values = {
    **BUNDLED,
    "networkPolicy": {"enabled": True},
    "answerPolicy": {"enabled": True},
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "rules": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "imagePullSecrets": [{"name": "pull"}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "only", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "podLabels": {"team": "sagas"},
    "podAnnotations": {"note": "yes"},
    "serviceAccount": {"annotations": {"cloud": "identity"}},
}
OPERATOR = {
    "app.kubernetes.io/name": "jobgroup-operator",
    "app.kubernetes.io/instance": "jobgroup-operator",
    "app.kubernetes.io/component": "operator",
}


def config_map(name: str, **data: str) -> Manifest:
    """Return the manifest of a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def one(manifests: list[Manifest], kind: str, suffix: str = "") -> Manifest:
    """Return the only object of a kind whose name ends with this suffix."""
    (found,) = (
        each
        for each in manifests
        if each["kind"] == kind and each["metadata"]["name"] == f"jobgroup-operator{suffix}"
    )
    return found


def pods(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Yield every pod template's metadata and spec."""
    for each in manifests:
        if template := each.get("spec", {}).get("template"):
            yield template["metadata"], template["spec"]


def container(pod: Manifest) -> Manifest:
    (found,) = pod["containers"]
    return dict(found)


def env_of(pod: Manifest) -> dict[str, Any]:
    return {
        each["name"]: each.get("value", each.get("valueFrom")) for each in container(pod)["env"]
    }


def summary(manifests: list[Manifest]) -> set[str]:
    """Return a name for each object, with its namespace unless it is that of the release."""
    found = set()
    for kind, namespace, name in named(manifests):
        where = "" if namespace in ("", NAMESPACE) else f"{namespace}/"
        found.add(f"{kind} {where}{name.removeprefix('jobgroup-operator')}".strip())
    return found


PLAIN = {
    "ClusterRole",
    "ClusterRole -edit",
    "ClusterRole -edit-pools",
    "ClusterRole -view",
    "ClusterRoleBinding",
    "CustomResourceDefinition jobgroups.jobgroups.dev",
    "CustomResourceDefinition workerpools.jobgroups.dev",
    "Deployment",
    "Job -uninstall",
    "PodDisruptionBudget",
    "Role -replicas",
    "RoleBinding -replicas",
    "Service",
    "ServiceAccount",
}
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding"}
