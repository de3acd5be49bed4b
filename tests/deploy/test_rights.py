"""Who may do what where the chart is installed."""

from typing import Any

import yaml

from testbed.chart import (
    NAMESPACE,
    Manifest,
    named,
    render,
)
from tests.deploy.rendered import (
    ROOT,
    WATCHED,
    env_of,
    one,
)


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
