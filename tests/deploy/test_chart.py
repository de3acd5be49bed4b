"""The chart as helm renders it: every switch, every way to Redis, and who may do what."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobgroup import __version__
from testbed.chart import (
    CHART,
    NAMESPACE,
    REDIS,
    Manifest,
    Values,
    helm,
    leaves,
    named,
    render,
    schema,
    with_values,
)

ROOT = Path(__file__).resolve().parents[2]
BUNDLED: Values = {"redis": {"bundled": {"enabled": True}}}
WATCHED: Values = {"watchNamespaces": ["shop", "bank"]}
EVERYTHING: Values = {
    **BUNDLED,
    "networkPolicy": {"enabled": True},
    "metrics": {
        "serviceMonitor": {"enabled": True},
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


def one(manifests: list[Manifest], kind: str, suffix: str = "") -> Manifest:
    """Return the only object of a kind whose name ends like this."""
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
    """Name each object, its namespace if it is not the release's."""
    found = set()
    for kind, namespace, name in named(manifests):
        where = "" if namespace in ("", NAMESPACE) else f"{namespace}/"
        found.add(f"{kind} {where}{name.removeprefix('jobgroup-operator')}".strip())
    return found


PLAIN = {
    "ClusterRole",
    "ClusterRole -edit",
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


@pytest.mark.parametrize(
    ("values", "more", "less"),
    [
        ({}, set(), set()),
        (BUNDLED, {"Service -redis", "StatefulSet -redis"}, set()),
        (
            {"crds": {"install": False}},
            set(),
            {each for each in PLAIN if each.startswith("CustomResourceDefinition")},
        ),
        ({"podDisruptionBudget": {"enabled": False}}, set(), {"PodDisruptionBudget"}),
        ({"networkPolicy": {"enabled": True}}, {"NetworkPolicy"}, set()),
        (
            {"networkPolicy": {"enabled": True}, **BUNDLED},
            {"NetworkPolicy", "NetworkPolicy -redis", "Service -redis", "StatefulSet -redis"},
            set(),
        ),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, {"ServiceMonitor"}, set()),
        ({"metrics": {"rules": {"enabled": True}}}, {"PrometheusRule"}, set()),
        ({"metrics": {"dashboard": {"enabled": True}}}, {"ConfigMap -dashboard"}, set()),
        ({"uninstall": {"hook": False}}, set(), {"Job -uninstall"}),
        ({"rbac": {"aggregate": False}}, set(), {"ClusterRole -edit", "ClusterRole -view"}),
        (
            {"rbac": {"create": False}},
            set(),
            {*CLUSTER_WIDE, "Role -replicas", "RoleBinding -replicas"},
        ),
        ({"serviceAccount": {"create": False, "name": "ours"}}, set(), {"ServiceAccount"}),
        (
            WATCHED,
            {
                "Role shop/",
                "RoleBinding shop/",
                "Role bank/",
                "RoleBinding bank/",
                "Role kube-system/-cluster-name",
                "RoleBinding kube-system/-cluster-name",
            },
            CLUSTER_WIDE,
        ),
    ],
    # Sets have no order of their own, and the workers of one run must agree on the names.
    ids=lambda value: "" if isinstance(value, set) else str(value),
)
def test_each_switch_does_what_it_says(values: Values, more: set[str], less: set[str]) -> None:
    found = summary(render(values, redis={} if "redis" in values else REDIS))
    assert found == (PLAIN - {each.strip() for each in less}) | {
        each.replace("/jobgroup-operator", "/").strip() for each in more
    }


@pytest.mark.parametrize("values", [REDIS, EVERYTHING, {**REDIS, **WATCHED}], ids=str)
def test_helm_finds_nothing_to_say_against_it(values: Values) -> None:
    said = helm("lint", "--strict", CHART, *with_values(values, {}))
    assert "0 chart(s) failed" in said
    assert "WARNING" not in said


def test_it_is_the_version_it_installs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    for _, pod in pods(render()):
        assert container(pod)["image"] == f"jobgroup-operator:{__version__}"


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["plain", "everything"])
def test_every_pod_is_as_harmless_as_can_be(values: Values) -> None:
    found = list(pods(render(values, redis={} if values else REDIS)))
    assert len(found) == (3 if values else 2)
    for _, pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container(pod)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} == container(pod)["resources"].keys()
        assert pod["enableServiceLinks"] is False


def test_a_replica_knows_who_it_is_and_is_asked_how_it_is() -> None:
    deployment = one(render({"port": 9000}), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    env = env_of(pod)
    assert deployment["spec"]["replicas"] == 2
    assert env["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert env["POD_NAMESPACE"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert (env["LEASE_NAME"], env["PORT"]) == ("jobgroup-operator", "9000")
    paths = {
        name: container(pod)[name]["httpGet"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {
        "startupProbe": {"path": "/livez", "port": "http"},
        "livenessProbe": {"path": "/livez", "port": "http"},
        "readinessProbe": {"path": "/readyz", "port": "http"},
    }
    assert container(pod)["ports"] == [{"name": "http", "containerPort": 9000}]
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": OPERATOR}


def test_values_of_a_pod_reach_the_pods() -> None:
    manifests = render(EVERYTHING, redis={})
    for kind, suffix in (("Deployment", ""), ("Job", "-uninstall")):
        template = one(manifests, kind, suffix)["spec"]["template"]
        pod = template["spec"]
        assert pod["imagePullSecrets"] == [{"name": "pull"}]
        assert pod["nodeSelector"] == {"disk": "ssd"}
        assert pod["tolerations"] == [{"key": "only", "operator": "Exists"}]
        assert pod["priorityClassName"] == "high"
    template = one(manifests, "Deployment")["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "sagas"
    assert template["metadata"]["annotations"] == {"note": "yes"}
    assert template["spec"]["affinity"] == {"nodeAffinity": {}}
    account = one(manifests, "ServiceAccount")
    assert account["metadata"]["annotations"] == {"cloud": "identity"}


def test_selectors_find_the_pods_they_mean_and_no_others() -> None:
    manifests = render(EVERYTHING, redis={})
    labels = {
        meta["labels"]["app.kubernetes.io/component"]: meta["labels"] for meta, _ in pods(manifests)
    }
    assert labels.keys() == {"operator", "redis", "uninstall"}

    def selected(selector: Manifest) -> set[str]:
        wanted = selector.get("matchLabels", selector).items()
        among = {each["key"]: each["values"] for each in selector.get("matchExpressions", ())}
        return {
            name
            for name, has in labels.items()
            if wanted <= has.items() and all(has[key] in values for key, values in among.items())
        }

    spec = {(each["kind"], each["metadata"]["name"]): each.get("spec", {}) for each in manifests}
    name = "jobgroup-operator"
    assert selected(spec["Deployment", name]["selector"]["matchLabels"]) == {"operator"}
    assert selected(spec["Service", name]["selector"]) == {"operator"}
    assert selected(spec["PodDisruptionBudget", name]["selector"]["matchLabels"]) == {"operator"}
    assert selected(spec["NetworkPolicy", name]["podSelector"]) == {"operator", "uninstall"}
    assert selected(spec["NetworkPolicy", f"{name}-redis"]["podSelector"]) == {"redis"}
    assert selected(spec["Service", f"{name}-redis"]["selector"]) == {"redis"}
    assert selected(spec["StatefulSet", f"{name}-redis"]["selector"]["matchLabels"]) == {"redis"}
    monitor = spec["ServiceMonitor", name]
    service = one(manifests, "Service")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [each["port"] for each in monitor["endpoints"]] == [
        each["name"] for each in service["spec"]["ports"]
    ]


def test_the_network_policies_admit_what_is_needed_and_nothing_else() -> None:
    policy = {"enabled": True, "apiServerPorts": [8443], "redisPorts": [6380, 6381]}
    manifests = render({**BUNDLED, "networkPolicy": policy, "port": 9000}, redis={})
    release = {key: OPERATOR[key] for key in OPERATOR if not key.endswith("component")}
    component = "app.kubernetes.io/component"

    def tcp(*ports: int) -> list[Manifest]:
        return [{"port": port, "protocol": "TCP"} for port in ports]

    assert one(manifests, "NetworkPolicy")["spec"] == {
        "podSelector": {
            "matchLabels": release,
            "matchExpressions": [
                {"key": component, "operator": "In", "values": ["operator", "uninstall"]}
            ],
        },
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": tcp(9000)}],
        "egress": [
            {"ports": [{"port": 53, "protocol": "UDP"}, *tcp(53)]},
            {"ports": tcp(8443, 6380, 6381)},
        ],
    }
    # No egress is named, so there is none.
    assert one(manifests, "NetworkPolicy", "-redis")["spec"] == {
        "podSelector": {"matchLabels": {**release, component: "redis"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"namespaceSelector": {}}], "ports": tcp(6379)}],
    }


def test_the_alerts_lead_to_where_the_runbooks_are_kept() -> None:
    file = yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    rules: Values = {"enabled": True, "labels": {"release": "prometheus"}}
    found = one(render({"metrics": {"rules": rules}}), "PrometheusRule")
    assert found["spec"] == file
    assert found["metadata"]["labels"]["release"] == "prometheus"
    kept = "https://git.example/docs/runbooks.md"
    found = one(render({"metrics": {"rules": {**rules, "runbookUrl": kept}}}), "PrometheusRule")
    (group,) = found["spec"]["groups"]
    links = [rule["annotations"]["runbook_url"] for rule in group["rules"]]
    assert links[0] == f"{kept}#jobgroupstuck"
    assert all(link.startswith(f"{kept}#") for link in links)


def test_grafana_finds_the_dashboard() -> None:
    found = one(render({"metrics": {"dashboard": {"enabled": True}}}), "ConfigMap", "-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    (text,) = found["data"].values()
    assert json.loads(text) == json.loads((CHART / "files/dashboard.json").read_text())


# Everything is on, so that every value has a place to stand.
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
# Where a value is of use only with another way to Redis.
WAYS = {"redis.url": REDIS, "redis.existingSecret": BY_SECRET, "redis.tls": BY_SECRET}
PODS = ("Deployment", "Job -uninstall")
RIGHTS = (*CLUSTER_WIDE, "Role -replicas", "RoleBinding -replicas")
# What else a value may be -> the objects that show it.
CHANGES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "replicas": (3, ("Deployment",)),
    "image.repository": ("registry.example/operator", PODS),
    "image.tag": ("edge", PODS),
    "image.pullPolicy": ("Always", (*PODS, "StatefulSet -redis")),
    "imagePullSecrets": ([{"name": "another"}], (*PODS, "StatefulSet -redis")),
    "watchNamespaces": (
        ["shop"],
        (
            *PODS,
            *CLUSTER_WIDE,
            "Role shop/",
            "RoleBinding shop/",
            "Role kube-system/-cluster-name",
            "RoleBinding kube-system/-cluster-name",
        ),
    ),
    "redis.url": ("redis://another:6379/0", PODS),
    "redis.existingSecret.name": ("another", PODS),
    "redis.existingSecret.urlKey": ("another", PODS),
    "redis.existingSecret.usernameKey": ("another", PODS),
    "redis.existingSecret.passwordKey": ("another", PODS),
    "redis.tls.caSecret": ("another", PODS),
    "redis.tls.caKey": ("another", PODS),
    "redis.prefix": ("shop", PODS),
    "redis.bundled.image": ("valkey:8", ("StatefulSet -redis",)),
    "redis.bundled.storage": ("2Gi", ("StatefulSet -redis",)),
    "redis.bundled.storageClass": ("fast", ("StatefulSet -redis",)),
    "redis.bundled.resources.requests": ({"cpu": "7m"}, ("StatefulSet -redis",)),
    "redis.bundled.resources.limits": ({"memory": "7Mi"}, ("StatefulSet -redis",)),
    "port": (9000, (*PODS, "NetworkPolicy", "Service")),
    "workers": (32, PODS),
    "logFormat": ("json", PODS),
    "crds.install": (False, tuple(each for each in PLAIN if "Definition" in each)),
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
    "rbac.aggregate": (False, ("ClusterRole -edit", "ClusterRole -view")),
    "resources.requests": ({"cpu": "7m"}, PODS),
    "resources.limits": ({"memory": "7Mi"}, PODS),
    "nodeSelector": ({"disk": "another"}, PODS),
    "tolerations": ([{"key": "another"}], PODS),
    "affinity": ({"podAffinity": {"another": "one"}}, ("Deployment",)),
    "priorityClassName": ("another", PODS),
    "podLabels": ({"team": "another"}, ("Deployment",)),
    "podAnnotations": ({"note": "another"}, ("Deployment",)),
    "topologySpread.enabled": (False, ("Deployment",)),
    "topologySpread.topologyKey": ("topology.kubernetes.io/zone", ("Deployment",)),
    "podDisruptionBudget.enabled": (False, ("PodDisruptionBudget",)),
    "networkPolicy.enabled": (False, ("NetworkPolicy", "NetworkPolicy -redis")),
    "networkPolicy.apiServerPorts": ([8443], ("NetworkPolicy",)),
    "networkPolicy.redisPorts": ([6380], ("NetworkPolicy",)),
    "metrics.serviceMonitor.enabled": (False, ("ServiceMonitor",)),
    "metrics.serviceMonitor.interval": ("7s", ("ServiceMonitor",)),
    "metrics.serviceMonitor.labels": ({"release": "another"}, ("ServiceMonitor",)),
    "metrics.rules.enabled": (False, ("PrometheusRule",)),
    "metrics.rules.labels": ({"release": "another"}, ("PrometheusRule",)),
    "metrics.rules.runbookUrl": ("https://git.example/runbooks", ("PrometheusRule",)),
    "metrics.dashboard.enabled": (False, ("ConfigMap -dashboard",)),
    "metrics.dashboard.labels": ({"folder": "another"}, ("ConfigMap -dashboard",)),
    "uninstall.hook": (False, ("Job -uninstall", "Role -replicas")),
    "uninstall.timeoutSeconds": (77, ("Job -uninstall",)),
}


def test_no_value_is_left_out() -> None:
    described = {path for path, _ in leaves(schema())}
    # A switch that others stand behind, what all is called, and what nobody reads.
    others = {"redis.bundled.enabled", "nameOverride", "fullnameOverride", "global"}
    assert described - CHANGES.keys() == others


@pytest.mark.parametrize("path", CHANGES)
def test_each_value_stands_where_it_is_to_be_and_nowhere_else(path: str) -> None:
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
    """Return all that is said if everything is on."""
    return spelt(render({**ALL_ON, **WAYS.get(way, {})}, redis={}))


def with_value(values: Values, path: str, value: Any) -> dict[str, Any]:
    """Return the same values with another one at a path."""
    name, _, rest = path.partition(".")
    return {**values, name: with_value(values.get(name, {}), rest, value) if rest else value}


def scalars(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all that stands in an object, with its place."""
    if isinstance(node, dict):
        for name, each in node.items():
            yield from scalars(each, f"{path}.{name}")
    elif isinstance(node, list):
        for number, each in enumerate(node):
            yield from scalars(each, f"{path}.{number}")
    else:
        yield path, node


def spelt(manifests: list[Manifest]) -> set[tuple[str, str, Any]]:
    """Return all that is said of each object, line by line."""
    return {
        (next(iter(summary([each]))), path, value)
        for each in manifests
        for path, value in scalars(each)
    }


FOLDER = "/etc/jobgroup/redis"
SECRET = {"name": "redis", "urlKey": "uri"}


@pytest.mark.parametrize(
    ("redis", "env", "files"),
    [
        (REDIS["redis"], {"REDIS_URL": "redis://redis:6379/0"}, {}),
        (
            {"bundled": {"enabled": True}},
            {"REDIS_URL": f"redis://jobgroup-operator-redis.{NAMESPACE}:6379/0"},
            {},
        ),
        (
            {"existingSecret": SECRET},
            {"REDIS_URL_FILE": f"{FOLDER}/url"},
            {"url": ("redis", "uri")},
        ),
        (
            {
                "existingSecret": {**SECRET, "usernameKey": "user", "passwordKey": "pass"},
                "tls": {"caSecret": "tls", "caKey": "root.pem"},
            },
            {
                "REDIS_URL_FILE": f"{FOLDER}/url",
                "REDIS_USERNAME_FILE": f"{FOLDER}/username",
                "REDIS_PASSWORD_FILE": f"{FOLDER}/password",
                "REDIS_CA_FILE": f"{FOLDER}/ca.crt",
            },
            {
                "url": ("redis", "uri"),
                "username": ("redis", "user"),
                "password": ("redis", "pass"),
                "ca.crt": ("tls", "root.pem"),
            },
        ),
        (
            {"url": "rediss://r:1", "existingSecret": {"name": "redis", "passwordKey": "pass"}},
            {"REDIS_URL": "rediss://r:1", "REDIS_PASSWORD_FILE": f"{FOLDER}/password"},
            {"password": ("redis", "pass")},
        ),
        (
            {"url": "rediss://r:1", "tls": {"caSecret": "tls"}},
            {"REDIS_URL": "rediss://r:1", "REDIS_CA_FILE": f"{FOLDER}/ca.crt"},
            {"ca.crt": ("tls", "ca.crt")},
        ),
    ],
    ids=str,
)
def test_each_way_to_redis(
    redis: Values, env: dict[str, str], files: dict[str, tuple[str, str]]
) -> None:
    manifests = render({"redis": redis}, redis={})
    for kind, suffix in (("Deployment", ""), ("Job", "-uninstall")):
        pod = one(manifests, kind, suffix)["spec"]["template"]["spec"]
        assert {name: value for name, value in env_of(pod).items() if "REDIS" in name} == env
        found = {
            item["path"]: (source["secret"]["name"], item["key"])
            for volume in pod.get("volumes", ())
            for source in volume["projected"]["sources"]
            for item in source["secret"]["items"]
        }
        assert found == files
        mounts = [each["mountPath"] for each in container(pod).get("volumeMounts", ())]
        assert mounts == ([FOLDER] if files else [])


def test_the_bundled_redis_keeps_its_data() -> None:
    redis = one(render(BUNDLED, redis={}), "StatefulSet", "-redis")["spec"]
    command = container(redis["template"]["spec"])["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    (claim,) = redis["volumeClaimTemplates"]
    (mount,) = container(redis["template"]["spec"])["volumeMounts"]
    assert mount == {"name": claim["metadata"]["name"], "mountPath": "/data"}
    assert claim["spec"]["resources"]["requests"] == {"storage": "1Gi"}


def test_definitions_are_the_generated_ones_and_outlive_the_chart() -> None:
    found = {
        each["metadata"]["name"]: each
        for each in render()
        if each["kind"] == "CustomResourceDefinition"
    }
    files = [yaml.safe_load(path.read_text()) for path in (ROOT / "deploy/crds").iterdir()]
    assert found == {each["metadata"]["name"]: each for each in files}
    for each in found.values():
        assert each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def rights(manifests: list[Manifest]) -> dict[tuple[str, str, str], Any]:
    """Return who may do what, without labels and comments."""
    kinds = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}
    return {
        key: {field: each[field] for field in ("rules", "roleRef", "subjects") if field in each}
        for key, each in named(manifests).items()
        if each["kind"] in kinds
    }


def test_the_rights_are_those_that_the_operator_is_tested_with() -> None:
    tested = list(yaml.safe_load_all((ROOT / "deploy/rbac.yaml").read_text()))
    assert rights(render({"rbac": {"aggregate": False}})) == rights(tested)


def test_whoever_watches_some_namespaces_has_rights_in_these_alone() -> None:
    everywhere, some = rights(render()), rights(render(WATCHED))
    cluster = everywhere["ClusterRole", "", "jobgroup-operator"]["rules"]
    definitions = [rule for rule in cluster if "customresourcedefinitions" in rule["resources"]]
    work = [rule for rule in cluster if rule not in definitions]
    assert len(definitions) == 1
    for namespace in ("shop", "bank"):
        assert some["Role", namespace, "jobgroup-operator"] == {"rules": work}
        binding = some["RoleBinding", namespace, "jobgroup-operator"]
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "jobgroup-operator", "namespace": NAMESPACE}
        ]
    assert some["Role", "kube-system", "jobgroup-operator-cluster-name"]["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["namespaces"],
            "resourceNames": ["kube-system"],
            "verbs": ["get"],
        }
    ]
    env = env_of(one(render(WATCHED), "Deployment")["spec"]["template"]["spec"])
    assert env["KOPF_RUN_NAMESPACES"] == "shop bank"
    assert "KOPF_RUN_CLUSTERWIDE" not in env


def test_replicas_share_their_own_lease_and_the_hook_scales_their_own_deployment() -> None:
    name = "sagas-jobgroup-operator"
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    own = [
        {**leases, "verbs": ["create"]},
        {**leases, "resourceNames": [name], "verbs": ["get", "update"]},
    ]
    scale = {
        "apiGroups": ["apps"],
        "resources": ["deployments/scale"],
        "resourceNames": [name],
        "verbs": ["patch"],
    }
    for hook, rules in ((True, [*own, scale]), (False, own)):
        found = rights(render({"uninstall": {"hook": hook}}, "sagas"))
        assert found["Role", NAMESPACE, f"{name}-replicas"] == {"rules": rules}


def test_the_namespace_of_the_release_may_be_watched_too() -> None:
    found = rights(render({"watchNamespaces": [NAMESPACE, "kube-system"]}))
    assert ("Role", NAMESPACE, "jobgroup-operator") in found
    assert ("Role", NAMESPACE, "jobgroup-operator-replicas") in found


def test_viewers_and_editors_of_a_namespace_see_and_change_both_kinds() -> None:
    manifests = render()
    view, edit = (one(manifests, "ClusterRole", each) for each in ("-view", "-edit"))
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert view["metadata"]["labels"][f"{prefix}view"] == "true"
    assert edit["metadata"]["labels"][f"{prefix}edit"] == "true"
    both = {"apiGroups": ["jobgroups.dev"], "resources": ["jobgroups", "workerpools"]}
    assert view["rules"] == [{**both, "verbs": ["get", "list", "watch"]}]
    # Whoever edits views as well; nobody of them writes a status.
    changes = ["create", "update", "patch", "delete", "deletecollection"]
    assert edit["rules"] == [{**both, "verbs": changes}]


def test_a_release_of_another_name_shares_nothing_with_this_one() -> None:
    shared = {"CustomResourceDefinition"}
    mine = {key for key in named(render()) if key[0] not in shared}
    other = {key for key in named(render(release="second")) if key[0] not in shared}
    assert mine & other == set()
    assert ("Deployment", NAMESPACE, "second-jobgroup-operator") in other


@pytest.mark.parametrize(
    ("release", "values", "name", "label"),
    [
        ("sagas", {}, "sagas-jobgroup-operator", "jobgroup-operator"),
        ("sagas", {"nameOverride": "operator"}, "sagas-operator", "operator"),
        ("my-operator", {"nameOverride": "operator"}, "my-operator", "operator"),
        ("sagas", {"fullnameOverride": "ours"}, "ours", "jobgroup-operator"),
        # A release may have dots in its name, and a Service may not.
        ("v1.sagas", {}, "v1-sagas-jobgroup-operator", "jobgroup-operator"),
        ("s" * 49 + ".s", {}, "s" * 49, "jobgroup-operator"),
    ],
)
def test_what_a_release_is_called(release: str, values: Values, name: str, label: str) -> None:
    found = named(render({**values, **EVERYTHING}, release, redis={}))
    ours = {key for key in found if key[0] != "CustomResourceDefinition"}
    assert {key[2].removeprefix(name).partition("-")[0] for key in ours} == {""}
    labels = found["Deployment", NAMESPACE, name]["spec"]["selector"]["matchLabels"]
    assert labels == {**OPERATOR, **dict(zip(OPERATOR, (label, release), strict=False))}


def test_what_leaves_with_the_chart_says_goodbye_first() -> None:
    job = one(render({"fullnameOverride": "jobgroup-operator"}), "Job", "-uninstall")
    assert job["metadata"]["annotations"] == {
        "helm.sh/hook": "pre-delete",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
        "helm.sh/hook-output-log-policy": "hook-succeeded,hook-failed",
    }
    command = container(job["spec"]["template"]["spec"])["command"]
    assert command == ["python3", "-m", "handlers.uninstall", "jobgroup-operator"]
