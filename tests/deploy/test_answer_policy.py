"""The optional policy about who may answer jobs, on a real API server."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from testbed.servers.apiserver import ApiServer, KubectlError
from testbed.support.chart import render
from testbed.support.pages import Page
from testbed.support.resources import manifest
from testbed.support.sagas import job, undo
from testbed.support.waiting import wait_for

Patch = Callable[..., str]
SIGN = "by must be the user who answers: "
VERB = "needs the verb answer on jobgroups.jobgroups.dev"


@pytest.fixture
def patch(jobgroup_crd: ApiServer, namespace: str) -> Iterator[Patch]:
    """Install the policy, and let ann answer; return a function that changes a spec as a user."""
    api = jobgroup_crd
    (approver,) = [
        role
        for block in Page("docs/installing.md").blocks
        if block.language == "yaml"
        for role in yaml.safe_load_all(block.text)
        if role and role.get("kind") == "Role" and role["metadata"]["name"] == "approver"
    ]
    editor = {"verbs": ["get", "update", "patch"], "resources": ["jobgroups"]}
    editor |= {"apiGroups": ["jobgroups.dev"]}
    roles = {"ann": approver["rules"], "ben": [editor]}
    policy = [
        each
        for each in render({"answerPolicy": {"enabled": True}})
        if each["kind"].startswith("ValidatingAdmissionPolicy")
    ]

    def apply(*objects: Any, space: str = namespace) -> None:
        for each in objects:
            api.kubectl("apply", "-n", space, "-f", "-", stdin=json.dumps(each))

    def change(user: str, *flags: str, **spec: Any) -> str:
        """Return the refusal, or nothing."""
        text = json.dumps({"spec": spec})
        try:
            api.kubectl(
                *("patch", "jobgroup", "order", "-n", namespace, "--type=merge", "-p", text),
                *(*flags, *(("--as", user) if user != "admin" else ())),
            )
        except KubectlError as error:
            return str(error)
        return ""

    def unsigned() -> str:
        return change("admin", "--dry-run=server", complete={"approve": {"by": "nobody"}})

    rbac = "rbac.authorization.k8s.io"
    for user, rules in roles.items():
        head = {"apiVersion": f"{rbac}/v1", "metadata": {"name": user}}
        subject = {"kind": "User", "name": user, "apiGroup": rbac}
        ref = {"kind": "Role", "name": user, "apiGroup": rbac}
        apply(
            {**head, "kind": "Role", "rules": rules},
            {**head, "kind": "RoleBinding", "subjects": [subject], "roleRef": ref},
        )
    undos = {"charge": undo("refund")}
    apply(manifest("order", job("charge"), job("approve"), undos=undos))
    try:
        for each in policy:
            api.kubectl("apply", "-f", "-", stdin=json.dumps(each))
        wait_for(lambda: SIGN in unsigned())
        yield change
    finally:
        for each in policy:
            api.kubectl("delete", "-f", "-", stdin=json.dumps(each))
        # Other tests use the same server.
        wait_for(lambda: unsigned() == "")


def test_an_answer_is_signed_by_the_user_who_may_answer(patch: Patch) -> None:
    yes = {"approve": {"returnValue": {"limit": [500, None]}, "by": "ann"}}
    assert f"the user ben {VERB}" in patch("ben", complete={"approve": {"by": "ben"}})
    assert f"{SIGN}ann" in patch("ann", complete={"approve": {"by": "ben"}})
    assert patch("ann", complete=yes) == ""
    # What others answered may stay, and other fields may change.
    assert patch("ben", ttlSecondsAfterFinished=60) == ""
    assert patch("ben", complete=yes, cancel=False) == ""
    assert VERB in patch("ben", complete={"charge": {"by": "ben"}})
    assert VERB in patch("ben", complete={"approve": {"returnValue": 5}})
    assert f"{SIGN}ann" in patch("ann", complete={"charge": {"failed": "no", "by": "ben"}})
    assert patch("ann", complete={"charge": {"failed": "no", "by": "ann"}}) == ""
    assert patch("ben", complete=None) == ""


def test_a_resolution_is_signed_by_the_user_who_may_answer(patch: Patch) -> None:
    assert f"the user ben {VERB}" in patch("ben", resolved=resolved("ben"))
    assert f"{SIGN}ann" in patch("ann", resolved=resolved("ben"))
    assert patch("ann", resolved={"charge": {"reason": "refunded"}}) != ""  # unsigned
    assert patch("ann", resolved=resolved("ann")) == ""
    assert patch("ben", resolved=resolved("ann"), ttlSecondsAfterFinished=60) == ""
    assert patch("ben", resolved=None) == ""


def resolved(by: str) -> dict[str, Any]:
    return {"charge": {"reason": "refunded", "by": by}}


def test_an_object_without_answers_is_not_affected(patch: Patch) -> None:
    assert patch("ben", cancel=True) == ""
