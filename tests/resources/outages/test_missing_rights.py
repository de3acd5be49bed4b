"""A missing right is named by /readyz of the leader and in the log, and refusals are counted."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from testbed.servers.apiserver import OPERATOR_MANIFEST, OPERATOR_NAMESPACE
from testbed.servers.operator import OperatorProcess
from testbed.support.resources import manifest
from testbed.support.scrapes import Scrape
from testbed.support.stages import WAIT, Stage
from testbed.support.waiting import wait_for
from testbed.support.workloads import pool

GROUP = "rbac.authorization.k8s.io"
MISSING = 'cannot update jobgroups/status in API group "jobgroups.dev"'


class Account:
    """A service account with the rights of the operator, some of which a test takes away."""

    def __init__(self, stage: Stage) -> None:
        self.name = f"limited-{stage.namespace}"
        self._stage = stage
        documents = yaml.safe_load_all(OPERATOR_MANIFEST.read_text())
        (self._rules,) = [each["rules"] for each in documents if each["kind"] == "ClusterRole"]
        self._user = stage.api.user
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        inside = {"metadata": {"name": self.name, "namespace": OPERATOR_NAMESPACE}}
        self._user.create({**account, **inside})
        self._user.create(self._role(self._rules))
        self._user.create(self._binding("ClusterRoleBinding", "ClusterRole", self.name))
        own = self._binding("RoleBinding", "Role", "jobgroup-operator-replicas")
        own["metadata"]["namespace"] = OPERATOR_NAMESPACE
        self._user.create(own)
        self.kubeconfig = stage.api.identity(OPERATOR_NAMESPACE, self.name)

    def _role(self, rules: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": self.name},
            "rules": rules,
        }

    def _binding(self, kind: str, role_kind: str, role: str) -> dict[str, Any]:
        who = {"kind": "ServiceAccount", "name": self.name, "namespace": OPERATOR_NAMESPACE}
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": kind,
            "metadata": {"name": self.name},
            "roleRef": {"apiGroup": GROUP, "kind": role_kind, "name": role},
            "subjects": [who],
        }

    def _set(self, rules: list[dict[str, Any]]) -> None:
        self._stage.resources.apply(self._role(rules))

    def revoke(self, resource: str) -> None:
        """Take the rights on a resource away."""
        rules = deepcopy(self._rules)
        for rule in rules:
            rule["resources"] = [each for each in rule["resources"] if each != resource]
        self._set(rules)

    def restore(self) -> None:
        """Grant all rights again."""
        self._set(self._rules)

    def delete(self) -> None:
        """Delete the cluster-wide objects."""
        self._user.delete("ClusterRoleBinding", self.name)
        self._user.delete("ClusterRole", self.name)


@pytest.fixture
def account(stage: Stage) -> Iterator[Account]:
    account = Account(stage)
    yield account
    account.delete()


def is_ready(operator: OperatorProcess) -> bool:
    code, text = operator.probe("/readyz")
    # A replica that waits for the Lease adds what it does.
    return code == 200 and text.splitlines()[0].startswith("ok") and "rights" not in text


def refused(operator: OperatorProcess) -> float:
    labels = {"verb": "update", "resource": "jobgroups/status", "code": "403"}
    value = Scrape.of(operator).value("jobgroup_api_refused_total", **labels)
    assert value is not None
    return value


async def test_a_right_that_is_revoked_is_named_until_it_is_granted_again(
    stage: Stage, account: Account
) -> None:
    operator = stage.operator("first", account.kubeconfig)
    wait_for(lambda: Scrape.of(operator).value("jobgroup_leader") == 1)
    wait_for(lambda: is_ready(operator))
    other = stage.operator("second", account.kubeconfig)
    assert refused(operator) == 0
    account.revoke("jobgroups/status")
    stage.resources.apply(manifest("order", WAIT))
    wait_for(lambda: operator.probe("/readyz") == (503, f"rights: {MISSING}\n"))
    assert refused(operator) > 0
    # JobGroupRequestsRefused leaves statuses to JobGroupStatusRefused, which uses this metric.
    labels = {"kind": "JobGroup", "code": "403"}
    assert (Scrape.of(operator).value("jobgroup_status_refused_total", **labels) or 0) > 0
    (line,) = [each for each in operator.log.splitlines() if "a right is missing" in each]
    assert "[ERROR" in line
    assert line.endswith(f"a right is missing: the operator {MISSING}")
    # A restart would not help, and a replica that waits needs no rights.
    assert operator.probe("/livez") == (200, "ok\n")
    wait_for(lambda: is_ready(other))
    account.restore()
    wait_for(lambda: is_ready(operator))
    stage.resources.reaches("order", state="ACTIVE")


async def test_a_right_that_is_missing_at_the_start_is_logged(
    stage: Stage, account: Account
) -> None:
    account.revoke("deployments/scale")
    operator = stage.operator("operator", account.kubeconfig)
    scale = 'cannot patch deployments/scale in API group "apps"'
    wait_for(lambda: f"a right is missing: the operator {scale}\n" in operator.log)
    # It matters once there is a pool.
    ready = (200, f"ok\noptional rights: {scale}\n")
    wait_for(lambda: operator.probe("/readyz") == ready)
    stage.resources.apply(pool("payers", "payments"))
    wait_for(lambda: operator.probe("/readyz") == (503, f"rights: {scale}\n"))
