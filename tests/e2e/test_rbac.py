"""The operator's RBAC grants are those that the other stories have used: none unused or missing."""

import pytest

from testbed.cluster.installation import NAMESPACE
from testbed.cluster.kind import AUDIT_LOG
from testbed.support import audit
from testbed.support.chart import RELEASE
from tests.e2e.stage import Stage

KINDS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


@pytest.mark.alone
def test_every_grant_is_used_and_none_is_missing(stage: Stage) -> None:
    everywhere = stage.user.within("")
    objects = [body for kind in KINDS for body in everywhere.find(kind)]
    granted = audit.grants(objects, NAMESPACE, RELEASE)
    called = audit.calls(audit_log(stage), NAMESPACE, RELEASE)

    assert audit.missing(granted, called) == []
    assert audit.unused(granted, called) == []


def audit_log(stage: Stage) -> list[str]:
    """Return the lines of the API server's audit log, which the kubelet serves."""
    node, *_ = stage.user.find("Node")
    file = AUDIT_LOG.removeprefix("/var/log/")
    path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/logs/{file}"
    done = stage.kubectl.attempt("get", "--raw", path)
    if done.returncode != 0:
        pytest.skip(f"this cluster keeps no audit log in {AUDIT_LOG}")
    return done.stdout.splitlines()
