"""What the operator may do is what it did in the stories before: no grant is unused or missing."""

import pytest

from testbed import audit
from testbed.chart import RELEASE
from testbed.cluster import AUDIT_LOG
from testbed.installation import NAMESPACE
from tests.e2e.stage import Stage

KINDS = "clusterroles,clusterrolebindings,roles,rolebindings"


@pytest.mark.alone
def test_every_grant_is_used_and_none_is_missing(stage: Stage) -> None:
    granted = audit.grants(
        stage.kubectl.json(KINDS, "--all-namespaces")["items"], NAMESPACE, RELEASE
    )
    called = audit.calls(audit_log(stage), NAMESPACE, RELEASE)

    assert audit.missing(granted, called) == []
    assert audit.unused(granted, called) == []


def audit_log(stage: Stage) -> list[str]:
    """Return what the API server noted, as the kubelet beside it hands it out."""
    (node, *_) = stage.kubectl.json("nodes")["items"]
    file = AUDIT_LOG.removeprefix("/var/log/")
    path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/logs/{file}"
    done = stage.kubectl.attempt("get", "--raw", path)
    if done.returncode != 0:
        pytest.skip(f"this cluster keeps no audit log in {AUDIT_LOG}")
    return done.stdout.splitlines()
