"""Each value of the chart changes the objects that it should, and no others."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from testbed.support.chart import REDIS, UNUSED, Manifest, Values, leaves, render, schema
from tests.deploy.rendered import (
    CLUSTER_WIDE,
    EVERYTHING,
    PLAIN,
    config_map,
    summary,
)

# Everything is enabled, so that every value has an effect.
ALL_ON: Values = {
    **EVERYTHING,
    "serviceAccount": {"name": "ours", "annotations": {"cloud": "identity"}},
}
BY_SECRET: Values = {
    "redis": {
        "existingSecret": {"name": "a", "urlKey": "b", "usernameKey": "c", "passwordKey": "d"},
        "tls": {"caSecret": "e"},
    }
}
BY_ADDRESS: Values = {
    "redis": {
        "addresses": ["sentinel:26379"],
        "sentinel": {
            "master": "mymaster",
            "existingSecret": {"name": "a", "usernameKey": "b", "passwordKey": "c"},
        },
        "tls": {"enabled": True, "caSecret": "d", "certSecret": "e"},
    }
}
# Values that need another Redis configuration.
WAYS = {
    "redis.url": REDIS,
    "redis.existingSecret": BY_SECRET,
    **dict.fromkeys(
        ("redis.addresses", "redis.database", "redis.sentinel", "redis.tls"), BY_ADDRESS
    ),
    "redis.cluster": {"redis": {"addresses": ["node:6379"], "prefix": "{bull}"}},
}
PODS = ("Deployment", "Job -uninstall")
CRDS = {each for each in PLAIN if "Definition" in each}
LABELLED = (PLAIN - CRDS - {"ServiceAccount"}) | {
    "ConfigMap -dashboard",
    "NetworkPolicy",
    "NetworkPolicy -redis",
    "PodMonitor",
    "PrometheusRule",
    "Service -redis",
    "ServiceAccount ours",
    "ServiceMonitor",
    "StatefulSet -redis",
    "ValidatingAdmissionPolicy -answers",
    "ValidatingAdmissionPolicyBinding -answers",
}
RIGHTS = (*CLUSTER_WIDE, "Role -replicas", "RoleBinding -replicas")
# A value, another setting for it -> the objects that change.
CHANGES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "replicas": (3, ("Deployment",)),
    "image.registry": ("registry.example:5000", PODS),
    "image.digest": (f"sha256:{'0' * 64}", PODS),
    "image.repository": ("registry.example/operator", PODS),
    "image.tag": ("edge", PODS),
    "image.pullPolicy": ("Always", (*PODS, "StatefulSet -redis")),
    "imagePullSecrets": ([{"name": "another"}], (*PODS, "StatefulSet -redis")),
    "watchNamespaces": (
        ["shop"],
        (
            *PODS,
            "Role -replicas",
            *CLUSTER_WIDE,
            "Role shop/",
            "RoleBinding shop/",
            "Role kube-system/-cluster-name",
            "RoleBinding kube-system/-cluster-name",
        ),
    ),
    "watch.labelSelector": ("team in (shop, bank),!paused", PODS),
    "redis.url": ("redis://another:6379/0", PODS),
    "redis.existingSecret.name": ("another", PODS),
    "redis.existingSecret.urlKey": ("another", PODS),
    "redis.existingSecret.usernameKey": ("another", PODS),
    "redis.existingSecret.passwordKey": ("another", PODS),
    "redis.addresses": (["another:7777"], (*PODS, "NetworkPolicy")),
    "redis.database": (7, PODS),
    "redis.sentinel.master": ("another", PODS),
    "redis.sentinel.tls": (False, PODS),
    "redis.sentinel.existingSecret.name": ("another", PODS),
    "redis.sentinel.existingSecret.usernameKey": ("another", PODS),
    "redis.sentinel.existingSecret.passwordKey": ("another", PODS),
    "redis.cluster": (True, PODS),
    "redis.tls.caSecret": ("another", PODS),
    "redis.tls.caKey": ("another", PODS),
    "redis.tls.certSecret": ("another", PODS),
    "redis.tls.certKey": ("another", PODS),
    "redis.tls.keyKey": ("another", PODS),
    "redis.prefix": ("shop", PODS),
    "redis.bundled.image": ("valkey:8", ("StatefulSet -redis",)),
    "redis.bundled.storage": ("2Gi", ("StatefulSet -redis",)),
    "redis.bundled.storageClass": ("fast", ("StatefulSet -redis",)),
    "redis.bundled.resources.requests": ({"cpu": "7m"}, ("StatefulSet -redis",)),
    "redis.bundled.resources.limits": ({"memory": "7Mi"}, ("StatefulSet -redis",)),
    "redis.bundled.podSecurityContext": ({"runAsUser": 7777}, ("StatefulSet -redis",)),
    "port": (9000, (*PODS, "NetworkPolicy", "Service")),
    "workers": (32, PODS),
    "api.qps": (50, PODS),
    "api.burst": (100, PODS),
    "logFormat": ("json", PODS),
    "workerPools.maxReplicas": (77, PODS),
    "workerPools.optIn": (True, PODS),
    "workerPools.aggregate": (False, ("ClusterRole -edit-pools",)),
    "crds.install": (False, tuple(CRDS)),
    "serviceAccount.create": (False, ("ServiceAccount ours",)),
    "serviceAccount.name": (
        "another",
        (
            *PODS,
            "ClusterRoleBinding",
            "RoleBinding -replicas",
            "ServiceAccount ours",
            "ServiceAccount another",
        ),
    ),
    "serviceAccount.annotations": ({"cloud": "another"}, ("ServiceAccount ours",)),
    "rbac.create": (False, RIGHTS),
    "rbac.aggregate": (
        False,
        ("ClusterRole -edit", "ClusterRole -edit-pools", "ClusterRole -view"),
    ),
    "answerPolicy.enabled": (
        False,
        ("ValidatingAdmissionPolicy -answers", "ValidatingAdmissionPolicyBinding -answers"),
    ),
    "resources.requests": ({"cpu": "7m"}, PODS),
    "resources.limits": ({"memory": "7Mi"}, PODS),
    "openshift": (True, (*PODS, "StatefulSet -redis")),
    "podSecurityContext": ({"runAsUser": 7777}, PODS),
    "securityContext": ({"readOnlyRootFilesystem": False}, (*PODS, "StatefulSet -redis")),
    "nodeSelector": ({"disk": "another"}, PODS),
    "tolerations": ([{"key": "another"}], PODS),
    "affinity": ({"podAffinity": {"another": "one"}}, ("Deployment",)),
    "priorityClassName": ("another", PODS),
    "dnsConfig": ({"options": [{"name": "ndots", "value": "2"}]}, PODS),
    "strategy": ({"type": "Recreate"}, ("Deployment",)),
    "commonLabels": ({"cost-center": "sagas"}, tuple(LABELLED)),
    "deploymentAnnotations": ({"note": "another"}, ("Deployment",)),
    "extraArgs": (["--verbose"], ("Deployment",)),
    "extraEnv": ([{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}], PODS),
    "extraVolumes": ([{"name": "ca", "configMap": {"name": "ca-bundle"}}], PODS),
    "extraVolumeMounts": ([{"name": "ca", "mountPath": "/etc/ca"}], PODS),
    "extraObjects": ([config_map("jobgroup-operator-more")], ("ConfigMap -more",)),
    "podLabels": ({"team": "another"}, ("Deployment",)),
    "podAnnotations": ({"note": "another"}, ("Deployment",)),
    "topologySpread.enabled": (False, ("Deployment",)),
    "topologySpread.topologyKey": ("topology.kubernetes.io/zone", ("Deployment",)),
    "podDisruptionBudget.enabled": (False, ("PodDisruptionBudget",)),
    "networkPolicy.enabled": (False, ("NetworkPolicy", "NetworkPolicy -redis")),
    "networkPolicy.apiServerPorts": ([8443], ("NetworkPolicy",)),
    "networkPolicy.redisPorts": ([6380], ("NetworkPolicy",)),
    "metrics.byNamespace": (True, PODS),
    "retention.groupTtlSeconds": (1_000_000, PODS),
    "retention.jobGroupTtlSeconds": (0, PODS),
    "metrics.serviceMonitor.enabled": (False, ("ServiceMonitor",)),
    "metrics.serviceMonitor.interval": ("7s", ("ServiceMonitor",)),
    "metrics.serviceMonitor.labels": ({"release": "another"}, ("ServiceMonitor",)),
    "metrics.serviceMonitor.scrapeTimeout": ("7s", ("ServiceMonitor",)),
    "metrics.serviceMonitor.relabelings": ([{"regex": "another"}], ("ServiceMonitor",)),
    "metrics.serviceMonitor.metricRelabelings": ([{"regex": "another"}], ("ServiceMonitor",)),
    "metrics.podMonitor.enabled": (False, ("PodMonitor",)),
    "metrics.podMonitor.interval": ("7s", ("PodMonitor",)),
    "metrics.podMonitor.scrapeTimeout": ("7s", ("PodMonitor",)),
    "metrics.podMonitor.labels": ({"release": "another"}, ("PodMonitor",)),
    "metrics.podMonitor.relabelings": ([{"regex": "another"}], ("PodMonitor",)),
    "metrics.podMonitor.metricRelabelings": ([{"regex": "another"}], ("PodMonitor",)),
    "metrics.rules.enabled": (False, ("PrometheusRule",)),
    "metrics.rules.labels": ({"release": "another"}, ("PrometheusRule",)),
    "metrics.rules.runbookUrl": ("https://git.example/runbooks", ("PrometheusRule",)),
    "metrics.rules.thresholds.activeSeconds": (7777777, ("PrometheusRule",)),
    "metrics.rules.thresholds.compensatingSeconds": (7777777, ("PrometheusRule",)),
    "metrics.rules.thresholds.wakeupLagSeconds": (7777777, ("PrometheusRule",)),
    "metrics.dashboard.enabled": (False, ("ConfigMap -dashboard",)),
    "metrics.dashboard.labels": ({"folder": "another"}, ("ConfigMap -dashboard",)),
    "uninstall.hook": (False, ("Job -uninstall", "Role -replicas")),
    "uninstall.timeoutSeconds": (77, ("Job -uninstall",)),
}


def test_every_value_is_tested() -> None:
    described = {path for path, _ in leaves(schema())}
    # A switch for other values, the names of all objects, and values that are not used.
    others = {"redis.bundled.enabled", "redis.tls.enabled", "nameOverride", "fullnameOverride"}
    others |= set(UNUSED)
    assert described - CHANGES.keys() == others


@pytest.mark.parametrize("path", CHANGES)
def test_each_value_changes_the_right_objects(path: str) -> None:
    value, objects = CHANGES[path]
    way = next((each for each in WAYS if path.startswith(each)), "")
    values = {**ALL_ON, **WAYS.get(way, {})}
    before, after = as_it_is(way), spelt(render(with_value(values, path, value), redis={}))
    assert {name for name, *_ in before ^ after} == set(objects)
    shown = {str(text) for *_, text in after - before}
    wanted = set() if isinstance(value, bool) else {str(each) for _, each in scalars(value)}
    assert [each for each in wanted if not any(each in text for text in shown)] == []


@cache
def as_it_is(way: str) -> set[tuple[str, str, Any]]:
    """Return every object as lines, rendered with everything enabled."""
    return spelt(render({**ALL_ON, **WAYS.get(way, {})}, redis={}))


def with_value(values: Values, path: str, value: Any) -> dict[str, Any]:
    """Return the values with one replaced."""
    name, _, rest = path.partition(".")
    return {**values, name: with_value(values.get(name, {}), rest, value) if rest else value}


def scalars(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every scalar in an object with its path."""
    if isinstance(node, dict):
        for name, each in node.items():
            yield from scalars(each, f"{path}.{name}")
    elif isinstance(node, list):
        for number, each in enumerate(node):
            yield from scalars(each, f"{path}.{number}")
    else:
        yield path, node


def spelt(manifests: list[Manifest]) -> set[tuple[str, str, Any]]:
    """Return every object as lines of path and value."""
    return {
        (next(iter(summary([each]))), path, value)
        for each in manifests
        for path, value in scalars(each)
    }
