"""The health checks of the guide for Argo CD and Flux, on real sagas and pools."""

import json
import re
import subprocess
from typing import Any

import yaml
from redis import Redis

from testbed.demo.parts import Parts
from testbed.support.pages import Page
from testbed.support.resources import Resources, manifest
from testbed.support.waiting import wait_for
from testbed.support.workloads import pool, workload

GUIDE = [
    document
    for block in Page("docs/guide.md").blocks
    if block.language == "yaml"
    for document in yaml.safe_load_all(block.text)
]
HOUR = 3_600_000

CHARGE = {"name": "charge-payment", "queueName": "payments", "data": {"orderId": "1", "amount": 1}}
SHIP = {"name": "book-shipping", "queueName": "shipping", "data": {"orderId": "1", "city": "Oslo"}}
LOSE = {**SHIP, "data": {"orderId": "1", "city": "Atlantis"}}
NOBODY = {"name": "book-train", "queueName": "trains"}
ENDLESS = {"attempts": 20, "backoff": {"type": "exponential", "delay": 1000}}
REFUND = {
    "charge-payment": {"name": "refund-payment", "queueName": "refunds", "data": {"note": "no"}}
}
# The undo finds no return value, fails, and is retried after an hour.
STARTED = {"queueName": "cancellations", "when": "Started"}
LATER = {"book-shipping": {"name": "cancel-shipping", **STARTED, "opts": {"backoff": HOUR}}}
STRANGE = {"book-shipping": {"name": "sing", **STARTED}}

SAGAS = [
    manifest("done", CHARGE, SHIP),
    manifest("undone", CHARGE, LOSE, undos=REFUND),
    manifest("undoing", LOSE, undos=LATER),
    manifest("stuck", LOSE, undos=STRANGE),
    manifest("running", NOBODY),
    manifest("held", CHARGE, suspend=True),
    manifest("given-up", CHARGE, cancel=True),
    manifest("wrong", {**CHARGE, "opts": ENDLESS}),
]
# The reason of the condition Ready of each; the test waits for these.
REASONS = {
    "done": "Completed",
    "undone": "Failed",
    "undoing": "Compensating",
    "stuck": "CompensationFailed",
    "running": "Running",
    "held": "Suspended",
    "given-up": "Cancelled",
    "wrong": "InvalidSpec",
}
POOLS = [
    pool("counting", "payments"),
    pool("resting", "payments", paused=True),
    pool("aimless", "payments", "nobody"),
]
POOL_REASONS = {"counting": "Counting", "resting": "Paused", "aimless": "TargetMissing"}


def settled(shop: Parts, kind: str, reasons: dict[str, str]) -> dict[str, Any]:
    """Return the objects of a kind once each has its reason."""
    found: dict[str, Any] = {}

    def has_settled() -> bool:
        items = json.loads(shop.api.kubectl("get", kind, "-o", "json"))["items"]
        found.update({item["metadata"]["name"]: item for item in items})
        said = {name: (item["status"].get("conditions") or [{}])[0] for name, item in found.items()}
        return {name: ready.get("reason") for name, ready in said.items()} == reasons

    wait_for(has_settled)
    return found


def argo_cd(shop: Parts, resource: dict[str, Any]) -> str:
    """Run the health check as Argo CD does, in Lua 5.1: the resource is `obj`."""
    (config,) = [each for each in GUIDE if each["metadata"]["name"] == "argocd-cm"]
    script = config["data"][f"resource.customizations.health.jobgroups.dev_{resource['kind']}"]
    asked = f"local obj = cjson.decode(ARGV[1])\nlocal function check()\n{script}\nend\n"
    answer = "return cjson.encode(check())"
    with Redis.from_url(shop.redis.url, decode_responses=True) as redis:
        health = json.loads(str(redis.eval(asked + answer, 0, json.dumps(resource))))
    assert health["message"]
    return str(health["status"])


def test_the_health_checks_report_the_state_of_a_saga(shop: Parts) -> None:
    new = shop.api.kubectl(
        "create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(SAGAS[0])
    )
    assert argo_cd(shop, json.loads(new)) == "Progressing"
    Resources(shop.api, "default").apply(*SAGAS)
    sagas = settled(shop, "jobgroups", REASONS)
    assert {name: argo_cd(shop, saga) for name, saga in sagas.items()} == {
        "done": "Healthy",
        "undone": "Degraded",
        "undoing": "Progressing",
        "stuck": "Degraded",
        "running": "Progressing",
        "held": "Suspended",
        "given-up": "Degraded",
        "wrong": "Degraded",
    }
    sagas["done"]["metadata"]["generation"] += 1
    assert argo_cd(shop, sagas["done"]) == "Progressing"
    assert flux(shop) == {
        "done": "current not failed",
        "undone": "current not failed",
        "undoing": "not current not failed",
        "stuck": "not current failed",
        "running": "not current not failed",
        "held": "not current not failed",
        "given-up": "not current failed",
        "wrong": "not current failed",
    }


def flux(shop: Parts) -> dict[str, str]:
    """Evaluate the expressions for every saga with the CEL of the API server.

    An admission policy that only warns returns their values in its warnings.
    """
    (kustomization,) = [each for each in GUIDE if each["kind"] == "Kustomization"]
    (checks,) = kustomization["spec"]["healthCheckExprs"]
    assert (checks["apiVersion"], checks["kind"]) == ("jobgroups.dev/v1alpha1", "JobGroup")
    said = "'health of ' + object.metadata.name + ':'"
    for name in ("current", "failed"):
        # Flux writes `status` where a policy needs `object.status`.
        expression = re.sub(r"(?<![.\w])status\.", "object.status.", checks[name])
        said += f" + (({expression}) ? ' {name}' : ' not {name}')"
    rule = {"apiGroups": ["jobgroups.dev"], "apiVersions": ["v1alpha1"], "resources": ["jobgroups"]}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "health"},
        "spec": {
            "matchConstraints": {"resourceRules": [{**rule, "operations": ["UPDATE"]}]},
            "validations": [{"expression": "false", "messageExpression": said}],
        },
    }
    binding = {
        **policy,
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": "health", "validationActions": ["Warn"]},
    }
    answers: dict[str, str] = {}

    def has_answered() -> bool:
        command = ["annotate", "jobgroups", "--all", "--dry-run=server", "asked=yes"]
        kubectl = [str(shop.api.kubectl_path), "--kubeconfig", str(shop.api.admin)]
        done = subprocess.run([*kubectl, *command], capture_output=True, text=True, check=True)
        answers.update(re.findall(r"health of (\S+): (.+)", done.stderr))
        return len(answers) == len(SAGAS)

    resources = Resources(shop.api, "default")
    resources.apply(policy, binding)
    try:
        wait_for(has_answered)
    finally:
        resources.kubectl(
            "delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "health"
        )
    return answers


def test_argo_cd_shows_the_health_of_a_pool(shop: Parts) -> None:
    # The saga creates the queues.
    workloads = workload("counting"), workload("resting")
    Resources(shop.api, "default").apply(manifest("done", CHARGE), *workloads, *POOLS)
    pools = settled(shop, "workerpools", POOL_REASONS)
    assert {name: argo_cd(shop, each) for name, each in pools.items()} == {
        "counting": "Healthy",
        "resting": "Suspended",
        "aimless": "Degraded",
    }
