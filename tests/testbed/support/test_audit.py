"""Grants are compared with calls, also with those in the audit log of a real API server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.servers.apiserver import (
    OPERATOR_ACCOUNT,
    OPERATOR_MANIFEST,
    OPERATOR_NAMESPACE,
    ApiServer,
    KubectlError,
)
from testbed.support import audit
from testbed.support.audit import Call, Grant
from testbed.support.waiting import wait_for

GET = Grant("get", "", "pods")
SCALE = Grant("patch", "apps", "deployments/scale", "shop", "web")


@pytest.mark.parametrize(
    ("grant", "call", "allowed"),
    [
        (GET, Call("get", "", "pods", "shop", "a"), True),
        (GET, Call("get", "", "pods", "", ""), True),
        (GET, Call("list", "", "pods", "shop", ""), False),
        (GET, Call("get", "metrics", "pods", "shop", "a"), False),
        (GET, Call("get", "", "pods/log", "shop", "a"), False),
        (SCALE, Call("patch", "apps", "deployments/scale", "shop", "web"), True),
        (SCALE, Call("patch", "apps", "deployments", "shop", "web"), False),
        (SCALE, Call("patch", "apps", "deployments/scale", "shop", "api"), False),
        (SCALE, Call("patch", "apps", "deployments/scale", "bank", "web"), False),
        (Grant("*", "*", "*"), Call("delete", "apps", "deployments", "shop", "web"), True),
        (Grant("*", "apps", "*"), Call("delete", "batch", "jobs", "shop", "web"), False),
    ],
    ids=str,
)
def test_a_grant_allows_its_calls_only(grant: Grant, call: Call, allowed: bool) -> None:
    assert grant.allows(call) is allowed
    assert (audit.missing([grant], [call]) == []) is allowed
    assert (audit.unused([grant], [call]) == []) is allowed


def test_unused_and_missing_grants_are_named() -> None:
    granted = {GET, SCALE, Grant("list", "", "pods")}
    called = {Call("get", "", "pods", "shop", "a"), Call("get", "", "secrets", "shop", "key")}
    assert audit.unused(granted, called) == [
        "list pods",
        "patch deployments/scale.apps web in shop",
    ]
    assert audit.missing(granted, called) == ["get secrets key in shop"]


def test_a_call_that_a_grant_for_one_name_allows_uses_no_other_grant() -> None:
    any_name = Grant("patch", "apps", "deployments/scale", "shop")
    web = Call("patch", "apps", "deployments/scale", "shop", "web")
    api = Call("patch", "apps", "deployments/scale", "shop", "api")
    granted = {any_name, SCALE}
    assert audit.unused(granted, [web]) == ["patch deployments/scale.apps in shop"]
    assert audit.unused(granted, [web, api]) == []
    assert audit.unused({any_name}, [web]) == []


def role(kind: str, name: str, *rules: dict[str, Any], **meta: str) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, **meta}, "rules": list(rules)}


def binding(kind: str, role: str, *subjects: tuple[str, str], **meta: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {"name": "any", **meta},
        "roleRef": {"kind": "ClusterRole" if role.isupper() else "Role", "name": role},
        "subjects": [
            {"kind": "ServiceAccount", "namespace": space, "name": name} for space, name in subjects
        ],
    }


PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
WEB = {
    "apiGroups": ["apps"],
    "resources": ["deployments/scale"],
    "resourceNames": ["web"],
    "verbs": ["patch"],
}
ME = ("sagas", "operator")


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([role("ClusterRole", "READ", PODS)], set()),
        (
            [role("ClusterRole", "READ", PODS), binding("ClusterRoleBinding", "READ", ME)],
            {GET, Grant("list", "", "pods")},
        ),
        # A ClusterRole that is bound in one namespace.
        (
            [
                role("ClusterRole", "READ", PODS),
                binding("RoleBinding", "READ", ("other", "one"), ME, namespace="shop"),
            ],
            {Grant("get", "", "pods", "shop"), Grant("list", "", "pods", "shop")},
        ),
        # Roles of the same name in two namespaces are different.
        (
            [
                role("Role", "scale", WEB, namespace="shop"),
                role("Role", "scale", PODS, namespace="bank"),
                binding("RoleBinding", "scale", ME, namespace="shop"),
            ],
            {SCALE},
        ),
        (
            [
                role("ClusterRole", "READ", PODS),
                binding("ClusterRoleBinding", "READ", ("other", "operator"), ("sagas", "other")),
            ],
            set(),
        ),
    ],
)
def test_the_grants_of_an_account(objects: list[Any], expected: set[Grant]) -> None:
    assert audit.grants(objects, *ME) == expected


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[tuple[ApiServer, Path]]:
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(yaml.safe_dump(audit.POLICY))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]
    with ApiServer(tmp_path, apiserver_flags=flags) as api:
        yield api, log


def test_the_audit_log_of_an_api_server_has_the_calls_of_an_account(
    audited: tuple[ApiServer, Path],
) -> None:
    api, log = audited
    me = (OPERATOR_NAMESPACE, OPERATOR_ACCOUNT)
    api.kubectl("get", "namespace", "kube-system", identity=api.operator)
    lease = {"metadata": {"name": "mine"}, "kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}
    where = ("-n", OPERATOR_NAMESPACE)
    api.kubectl("create", *where, "-f", "-", stdin=json.dumps(lease), identity=api.operator)
    with pytest.raises(KubectlError):
        api.kubectl("get", "secrets", *where, identity=api.operator)
    api.kubectl("auth", "can-i", "create", "leases", *where, identity=api.operator)
    api.kubectl("get", "configmaps", "-A")
    wait_for(lambda: "secrets" in log.read_text())
    called = audit.calls(log.read_text().splitlines(), *me)
    granted = audit.grants(yaml.safe_load_all(OPERATOR_MANIFEST.read_text()), *me)
    assert audit.missing(granted, called) == [f"list secrets in {OPERATOR_NAMESPACE}"]
    assert called - {Call("list", "", "secrets", OPERATOR_NAMESPACE, "")} == {
        Call("get", "", "namespaces", "kube-system", "kube-system"),
        Call("create", "coordination.k8s.io", "leases", OPERATOR_NAMESPACE, "mine"),
    }
    left = audit.unused(granted, called)
    assert len(left) == len(granted) - 2
    assert "get namespaces" not in left
    assert f"create leases.coordination.k8s.io in {OPERATOR_NAMESPACE}" not in left
