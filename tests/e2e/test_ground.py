"""The ground under all other end-to-end tests: our image runs, and reaches Redis by name."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

PING = """
from redis import Redis
print(Redis("redis", socket_connect_timeout=1, socket_timeout=1).ping())
"""


def deployment(name: str, replicas: int, container: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    pod = {"containers": [{"name": name, "imagePullPolicy": "IfNotPresent", **container}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def service(name: str, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": port}]},
    }


# Loading images and starting pods may take a slow machine longer than the project's usual limit.
@pytest.mark.timeout(900)
def test_two_pods_of_our_image_reach_redis_by_name(
    kubectl: Any,
    operator_image: str,
    redis_image: str,
    eventually: Callable[[Callable[[], Any]], Any],
) -> None:
    ready = {"tcpSocket": {"port": 6379}, "periodSeconds": 1}
    idle = ["python3", "-c", "import signal; signal.pause()"]
    kubectl.apply(
        deployment("redis", 1, {"image": redis_image, "readinessProbe": ready}),
        service("redis", 6379),
        deployment("client", 2, {"image": operator_image, "command": idle}),
    )

    kubectl.wait_for_rollout("redis")
    kubectl.wait_for_rollout("client")

    clients = kubectl.pods("app=client")
    assert len(clients) == 2
    for pod in clients:
        ping = ("exec", pod, "--", "python3", "-c", PING)
        # A new Service answers a moment after its pods are ready.
        assert eventually(partial(kubectl, *ping)).strip() == "True"
