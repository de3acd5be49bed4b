"""The chart as helm renders it: every switch, the pods, and the names."""

import json
import re

import pytest
import yaml

from jobgroup import __version__
from testbed import ROOT
from testbed.support.chart import (
    CHART,
    NAMESPACE,
    REDIS,
    Manifest,
    Values,
    helm,
    named,
    render,
    with_values,
)
from tests.deploy.rendered import (
    BUNDLED,
    CLUSTER_WIDE,
    EVERYTHING,
    OPERATOR,
    PLAIN,
    WATCHED,
    container,
    env_of,
    one,
    pods,
    summary,
)


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
        ({"metrics": {"podMonitor": {"enabled": True}}}, {"PodMonitor"}, set()),
        ({"metrics": {"rules": {"enabled": True}}}, {"PrometheusRule"}, set()),
        ({"metrics": {"dashboard": {"enabled": True}}}, {"ConfigMap -dashboard"}, set()),
        (
            {"answerPolicy": {"enabled": True}},
            {"ValidatingAdmissionPolicy -answers", "ValidatingAdmissionPolicyBinding -answers"},
            set(),
        ),
        ({"uninstall": {"hook": False}}, set(), {"Job -uninstall"}),
        (
            {"rbac": {"aggregate": False}},
            set(),
            {"ClusterRole -edit", "ClusterRole -edit-pools", "ClusterRole -view"},
        ),
        ({"workerPools": {"aggregate": False}}, set(), {"ClusterRole -edit-pools"}),
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
    # Sets have no order, and all workers of pytest-xdist must agree on the names of the tests.
    ids=lambda value: "" if isinstance(value, set) else str(value),
)
def test_each_switch_adds_and_removes_its_objects(
    values: Values, more: set[str], less: set[str]
) -> None:
    found = summary(render(values, redis={} if "redis" in values else REDIS))
    assert found == (PLAIN - {each.strip() for each in less}) | {
        each.replace("/jobgroup-operator", "/").strip() for each in more
    }


@pytest.mark.parametrize("values", [REDIS, EVERYTHING, {**REDIS, **WATCHED}], ids=str)
def test_helm_lint_finds_nothing(values: Values) -> None:
    said = helm("lint", "--strict", CHART, *with_values(values, {}))
    assert "0 chart(s) failed" in said
    assert "WARNING" not in said


def test_the_version_of_the_chart_is_that_of_the_operator() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    for _, pod in pods(render()):
        assert container(pod)["image"] == f"jobgroup-operator:{__version__}"


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["plain", "everything"])
def test_every_pod_meets_the_restricted_policy(values: Values) -> None:
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


def test_a_replica_has_its_identity_and_probes() -> None:
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


def test_selectors_match_their_own_pods_only() -> None:
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
    monitor = spec["PodMonitor", name]
    (port,) = container(one(manifests, "Deployment")["spec"]["template"]["spec"])["ports"]
    assert selected(monitor["selector"]["matchLabels"]) == {"operator"}
    assert [each["port"] for each in monitor["podMetricsEndpoints"]] == [port["name"]]


def test_the_network_policies_allow_only_what_is_needed() -> None:
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
    # Egress is restricted and no rule allows any.
    assert one(manifests, "NetworkPolicy", "-redis")["spec"] == {
        "podSelector": {"matchLabels": {**release, component: "redis"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"namespaceSelector": {}}], "ports": tcp(6379)}],
    }


def test_the_alerts_link_to_the_runbooks() -> None:
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


def test_the_crds_are_the_generated_ones_and_are_kept() -> None:
    found = {
        each["metadata"]["name"]: each
        for each in render()
        if each["kind"] == "CustomResourceDefinition"
    }
    files = [yaml.safe_load(path.read_text()) for path in (ROOT / "deploy/crds").iterdir()]
    assert found == {each["metadata"]["name"]: each for each in files}
    for each in found.values():
        assert each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_two_releases_share_no_objects() -> None:
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
def test_the_names_of_a_release(release: str, values: Values, name: str, label: str) -> None:
    found = named(render({**values, **EVERYTHING}, release, redis={}))
    ours = {key for key in found if key[0] != "CustomResourceDefinition"}
    assert {key[2].removeprefix(name).partition("-")[0] for key in ours} == {""}
    labels = found["Deployment", NAMESPACE, name]["spec"]["selector"]["matchLabels"]
    assert labels == {**OPERATOR, **dict(zip(OPERATOR, (label, release), strict=False))}


def test_the_uninstall_hook() -> None:
    job = one(render({"fullnameOverride": "jobgroup-operator"}), "Job", "-uninstall")
    assert job["metadata"]["annotations"] == {
        "helm.sh/hook": "pre-delete",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
        "helm.sh/hook-output-log-policy": "hook-succeeded,hook-failed",
    }
    command = container(job["spec"]["template"]["spec"])["command"]
    assert command == ["python3", "-m", "handlers.uninstall", "jobgroup-operator"]


def test_the_page_describes_how_argo_cd_reads_the_annotations_of_the_uninstall_hook() -> None:
    annotations = one(render({}), "Job", "-uninstall")["metadata"]["annotations"]
    page = (ROOT / "docs" / "installing.md").read_text()
    _, _, section = page.partition("### Argo CD")
    table = [line for line in section.partition("\n#")[0].splitlines() if line.startswith("|")]
    named = dict(re.findall(r"`(helm\.sh/[a-z-]+): ([a-z-]+)`", "".join(table)))
    assert set(named) == {"helm.sh/hook"}
    assert named.items() <= annotations.items()
    # "The chart has no Argo CD annotations": with one, Argo CD would ignore that of Helm.
    assert not [key for key in annotations if "argocd" in key]
