"""The operator's RBAC grants are those that the other stories have used: none unused or missing."""

from collections.abc import Mapping
from typing import Any

import pytest

from jobgroup.resource.decisions import RELEASE_ANNOTATION
from jobgroup.resource.kinds import JOBGROUP
from testbed.cluster.installation import NAMESPACE
from testbed.cluster.kind import AUDIT_LOG
from testbed.support import audit
from testbed.support.chart import RELEASE
from tests.e2e.stage import NEVER, Stage

KINDS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


@pytest.mark.alone
def test_every_grant_is_used_and_none_is_missing(stage: Stage) -> None:
    take_over(stage)
    everywhere = stage.user.within("")
    objects = [body for kind in KINDS for body in everywhere.find(kind)]
    granted = audit.grants(objects, NAMESPACE, RELEASE)
    called = audit.calls(audit_log(stage), NAMESPACE, RELEASE)

    assert audit.missing(granted, called) == []
    assert audit.unused(granted, called) == []


def take_over(stage: Stage) -> None:
    """Claim a saga for a release that has no Lease; wait until the operator claims it."""
    stage.saga("taken", stage.job("wait", delay=NEVER))
    stage.sees("taken", state="ACTIVE")

    def is_claimed(body: Mapping[str, Any]) -> bool:
        claim = body["metadata"]["annotations"][RELEASE_ANNOTATION]
        return bool(claim == f"{NAMESPACE}/{RELEASE}")

    gone = {RELEASE_ANNOTATION: f"{NAMESPACE}/gone"}
    stage.user.patch(JOBGROUP.name, "taken", {"metadata": {"annotations": gone}})
    stage.user.wait_for(JOBGROUP.name, "taken", is_claimed, "the claim of this release")


def audit_log(stage: Stage) -> list[str]:
    """Return the lines of the API server's audit log, which the kubelet serves."""
    node, *_ = stage.user.find("Node")
    file = AUDIT_LOG.removeprefix("/var/log/")
    path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/logs/{file}"
    done = stage.kubectl.attempt("get", "--raw", path)
    if done.returncode != 0:
        pytest.skip(f"this cluster keeps no audit log in {AUDIT_LOG}")
    return done.stdout.splitlines()
