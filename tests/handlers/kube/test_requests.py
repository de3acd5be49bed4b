"""The method and URL of a request -> its verb and resource."""

import pytest

from handlers.kube.requests import parse_request

OURS = "/apis/jobgroups.dev/v1alpha1"


@pytest.mark.parametrize(
    ("method", "url", "expected"),
    [
        ("GET", f"{OURS}/namespaces/shop/jobgroups/order", ("get", "jobgroups")),
        ("GET", f"{OURS}/namespaces/shop/jobgroups?fieldSelector=x", ("list", "jobgroups")),
        ("GET", f"{OURS}/jobgroups?limit=50", ("list", "jobgroups")),
        ("GET", f"{OURS}/jobgroups?watch=true&timeoutSeconds=40", ("watch", "jobgroups")),
        ("GET", f"{OURS}/jobgroups?watch=false", ("list", "jobgroups")),
        ("PUT", f"{OURS}/namespaces/shop/jobgroups/o/status", ("update", "jobgroups/status")),
        ("DELETE", f"{OURS}/namespaces/shop/jobgroups/o", ("delete", "jobgroups")),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/shop/deployments/web/scale?fieldManager=x",
            ("patch", "deployments/scale"),
        ),
        ("POST", "/api/v1/namespaces/shop/events", ("create", "events")),
        ("GET", "/api/v1/namespaces/shop", ("get", "namespaces")),
        ("GET", "/api/v1/namespaces", ("list", "namespaces")),
        # Discovery.
        ("GET", "/api/v1", ("list", "")),
        ("GET", OURS, ("list", "")),
        ("GET", "/apis", ("list", "")),
        ("GET", "/version", ("list", "")),
    ],
)
def test_verb_and_resource_of_a_request(method: str, url: str, expected: tuple[str, str]) -> None:
    assert parse_request(method, url) == expected
