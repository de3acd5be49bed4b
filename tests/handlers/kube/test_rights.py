"""The rights that the operator checks: those of deploy/rbac.yaml, in the namespaces it watches."""

import json

import pytest
import yaml

from handlers.kube.rights import RIGHTS, Review, Right, reviews
from testbed.servers.apiserver import OPERATOR_ACCOUNT, OPERATOR_MANIFEST, OPERATOR_NAMESPACE
from testbed.support import audit
from testbed.support.audit import Call
from testbed.support.chart import NAMESPACE as RELEASE_NAMESPACE
from testbed.support.chart import render
from tests.deploy.rendered import WATCHED

# Only the uninstall hook scales the operator.
HOOK = ("patch", "apps", "deployments/scale", OPERATOR_NAMESPACE)


def test_the_operator_checks_the_rights_that_rbac_yaml_grants() -> None:
    objects = list(yaml.safe_load_all(OPERATOR_MANIFEST.read_text()))
    granted = audit.grants(objects, OPERATOR_NAMESPACE, OPERATOR_ACCOUNT)
    known = {(each.verb, each.group, each.resource, each.namespace) for each in granted}
    needed = reviews((), OPERATOR_NAMESPACE, "jobgroup-operator")
    assert {
        (each.right.verb, each.right.group, each.right.resource, each.namespace) for each in needed
    } == known - {HOOK}


def call(review: Review) -> Call:
    right = review.right
    return Call(right.verb, right.group, right.resource, review.namespace, review.name)


@pytest.mark.server
def test_a_chart_that_watches_namespaces_grants_what_the_operator_checks_there() -> None:
    granted = audit.grants(render(WATCHED), RELEASE_NAMESPACE, "jobgroup-operator")
    needed = reviews(("shop", "bank"), RELEASE_NAMESPACE, "jobgroup-operator")
    assert audit.missing(granted, map(call, needed)) == []
    asked = {(each.namespace, each.right) for each in needed}
    update = Right("update", "jobgroups.dev", "jobgroups/status")
    assert {("shop", update), ("bank", update)} <= asked
    # Of any name: those of other releases.
    leases = [(each.namespace, each.name) for each in needed if each.right.resource == "leases"]
    assert leases.count((RELEASE_NAMESPACE, "")) == 2  # create and get
    assert "customresourcedefinitions" not in {right.resource for _, right in asked}


def test_a_review_names_the_subresource_apart() -> None:
    (right,) = [each for each in RIGHTS if each.resource == "deployments/scale"]
    review = Review(right, "shop")
    assert str(review) == 'patch deployments/scale in API group "apps" in namespace "shop"'
    assert json.loads(json.dumps(review.manifest))["spec"]["resourceAttributes"] == {
        "verb": "patch",
        "group": "apps",
        "resource": "deployments",
        "subresource": "scale",
        "namespace": "shop",
        "name": "",
    }
