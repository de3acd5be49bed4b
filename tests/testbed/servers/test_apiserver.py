"""The API server of the tests: its version, its admission and its RBAC."""

import json
from pathlib import Path

import pytest
from kubernetes import client, config

from testbed.build.binaries import KUBERNETES_VERSION
from testbed.servers.apiserver import ApiServer, KubectlError
from testbed.support.waiting import wait_for


def can(api: ApiServer, verb: str, resource: str) -> bool:
    try:
        api.kubectl("auth", "can-i", verb, resource, "--all-namespaces", identity=api.operator)
    except KubectlError:
        return False
    return True


def test_it_is_the_version_the_project_names(api: ApiServer) -> None:
    version = json.loads(api.kubectl("version", "-o", "json"))
    minor = KUBERNETES_VERSION.rpartition(".")[0]
    assert version["serverVersion"]["gitVersion"].startswith(minor)
    assert version["clientVersion"]["gitVersion"].startswith(minor)


def test_the_admin_can_create_objects_in_the_namespace_of_a_test(
    api: ApiServer, namespace: str
) -> None:
    api.kubectl("create", "configmap", "note", "-n", namespace, "--from-literal=k=v")
    kube = client.CoreV1Api(config.new_client_from_config(str(api.admin)))
    assert kube.read_namespaced_config_map("note", namespace).data == {"k": "v"}


def test_the_operator_can_do_only_what_its_role_grants(api: ApiServer) -> None:
    assert can(api, "watch", "customresourcedefinitions")
    assert not can(api, "get", "secrets")
    assert not can(api, "create", "namespaces")
    with pytest.raises(KubectlError, match=r"jobgroup-system:jobgroup-operator.*cannot list"):
        api.kubectl("get", "pods", "-A", identity=api.operator)


def test_controllers_run_on_request(tmp_path: Path) -> None:
    with ApiServer(tmp_path, controllers=True) as api:
        api.kubectl("create", "deployment", "web", "--image=none", "--replicas=2")
        wait_for(lambda: len(api.kubectl("get", "pods", "-o", "name").split()) == 2)
        api.kubectl("create", "namespace", "brief")
        api.kubectl("delete", "namespace", "brief", "--timeout=60s")
