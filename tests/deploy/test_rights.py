"""RBAC rules of the chart and of deploy/rbac.yaml."""

from typing import Any

import yaml

from jobgroup.resource.kinds import API_GROUP, KINDS
from testbed import ROOT
from testbed.servers.apiserver import ApiServer
from testbed.support.chart import NAMESPACE, Manifest, named, render
from tests.deploy.rendered import (
    WATCHED,
    env_of,
    one,
)


def rights(manifests: list[Manifest]) -> dict[tuple[str, str, str], Any]:
    """Return rules and bindings by object, without labels and comments."""
    kinds = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}
    return {
        key: {field: each[field] for field in ("rules", "roleRef", "subjects") if field in each}
        for key, each in named(manifests).items()
        if each["kind"] in kinds
    }


def test_the_chart_grants_what_rbac_yaml_grants() -> None:
    tested = list(yaml.safe_load_all((ROOT / "deploy/rbac.yaml").read_text()))
    assert rights(render({"rbac": {"aggregate": False}})) == rights(tested)


def granted(rules: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Return the verbs on each resource of this project."""
    found: dict[str, set[str]] = {}
    for rule in rules:
        if rule["apiGroups"] == [API_GROUP]:
            for resource in rule["resources"]:
                found.setdefault(resource, set()).update(rule["verbs"])
    return found


def test_the_operator_has_rights_on_every_kind_and_its_status() -> None:
    plurals = {kind.plural for kind in KINDS}
    tested = list(yaml.safe_load_all((ROOT / "deploy/rbac.yaml").read_text()))
    for manifests in (tested, render(WATCHED)):
        roles = [each for each in manifests if each["kind"] in ("Role", "ClusterRole")]
        found = [granted(each["rules"]) for each in roles if granted(each["rules"])]
        # The aggregated roles have no right on a status.
        operator = [each for each in found if not each.keys() <= plurals]
        assert operator
        for each in operator:
            assert each.keys() == plurals | {f"{plural}/status" for plural in plurals}
            assert all(each[plural] >= {"get", "list", "watch"} for plural in plurals)
            assert all(each[f"{plural}/status"] == {"update"} for plural in plurals)


def test_watching_some_namespaces_grants_rights_in_these_alone() -> None:
    everywhere, some = rights(render()), rights(render(WATCHED))
    cluster = everywhere["ClusterRole", "", "jobgroup-operator"]["rules"]
    apart = [{"customresourcedefinitions"}, {"leases"}]
    work = [rule for rule in cluster if set(rule["resources"]) not in apart]
    assert len(work) == len(cluster) - 2
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


def test_replicas_may_write_only_their_lease_and_scale_only_their_deployment() -> None:
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


def test_a_release_that_watches_some_namespaces_reads_the_leases_of_its_own_namespace() -> None:
    read = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    found = rights(render(WATCHED))
    assert [key for key, value in found.items() if read in value.get("rules", ())] == [
        ("Role", NAMESPACE, "jobgroup-operator-replicas")
    ]


def test_the_namespace_of_the_release_may_be_watched_too() -> None:
    found = rights(render({"watchNamespaces": [NAMESPACE, "kube-system"]}))
    assert ("Role", NAMESPACE, "jobgroup-operator") in found
    assert ("Role", NAMESPACE, "jobgroup-operator-replicas") in found


CHANGES = {"create", "update", "patch", "delete", "deletecollection"}
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"


def aggregated(manifests: list[Manifest], to: str) -> list[Manifest]:
    """Return the roles that are aggregated to a cluster role."""
    return [each for each in manifests if f"{AGGREGATE}{to}" in each["metadata"].get("labels", {})]


def test_viewers_and_editors_of_a_namespace_see_and_change_every_kind() -> None:
    plurals = {kind.plural for kind in KINDS}
    (view,) = aggregated(render(), "view")
    assert granted(view["rules"]) == {plural: {"get", "list", "watch"} for plural in plurals}
    # Editors have the role of viewers as well. Neither may write a status.
    rules = [rule for role in aggregated(render(), "edit") for rule in role["rules"]]
    assert granted(rules) == dict.fromkeys(plurals, CHANGES)


def scales(rules: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return the workloads that rules allow to scale, as group and resource."""
    return {
        (group, resource)
        for rule in rules
        if "patch" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if resource.endswith("/scale")
    }


def test_each_role_that_may_write_pools_may_scale_what_the_operator_scales() -> None:
    manifests = render()
    scaled = scales(one(manifests, "ClusterRole")["rules"])
    assert scaled == {("apps", "deployments/scale"), ("apps", "statefulsets/scale")}
    writers = [
        role for role in aggregated(manifests, "edit") if "workerpools" in granted(role["rules"])
    ]
    assert [scales(role["rules"]) for role in writers] == [scaled]
    without = render({"workerPools": {"aggregate": False}})
    rules = [rule for role in aggregated(without, "edit") for rule in role["rules"]]
    assert granted(rules) == {"jobgroups": CHANGES}


def test_the_cluster_role_edit_of_kubernetes_may_scale_what_the_operator_scales(
    bare_api: ApiServer,
) -> None:
    # Otherwise aggregation to it would extend the rights of its users.
    edit = bare_api.user.get("ClusterRole", "system:aggregate-to-edit")
    assert edit
    assert scales(edit["rules"]) >= scales(one(render(), "ClusterRole")["rules"])
