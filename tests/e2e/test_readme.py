"""The commands of the README and of the runbooks, as people type them, on a new kind cluster.

The cluster runs beside that of the other stories, in the same engine.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from jobgroup.resource.kinds import JOBGROUP
from testbed.build.helm import find_helm
from testbed.cluster import engine, kind
from testbed.images import base
from testbed.images.builders import Docker
from testbed.servers.certificates import Authority
from testbed.support.chart import NAMESPACE, RELEASE, defaults
from testbed.support.errors import Unavailable
from testbed.support.examples import problem_orders
from testbed.support.pages import Command, Page
from testbed.support.reader import Reader
from testbed.support.resources import namespace_named
from testbed.support.user import User
from testbed.support.workloads import is_rolled_out
from tests.e2e.stage import PATIENCE_SECONDS

README, GUIDE, RUNBOOKS = Page("README.md"), Page("docs/guide.md"), Page("docs/runbooks.md")
NAME = "jobgroup-readme"
# kind's own node image cannot be pulled everywhere, so the fixture `env` does this.
CREATE = Command("kind create cluster")
# There is no previous log: no container has restarted.
PREVIOUS = " --previous"
PASSWORD = "p@ss/w%rd#1"  # noqa: S105 (the password of a Redis that ends with the test)
HOST = f"redis.{NAMESPACE}.svc"
# TLS for the operator. The example's workers have no certificate of this authority.
TLS_PORT, PLAIN_PORT = 6380, 6379


@pytest.fixture(scope="module")
def env() -> Iterator[dict[str, str]]:
    """Create the cluster; return the environment of somebody with kind, kubectl and helm."""
    try:
        docker = engine.running()
    except Unavailable as absence:
        pytest.skip(f"the README needs a container engine: {absence}")
    with kind.created(docker, base.node(Docker(docker)), name=NAME) as cluster:
        programs = (kind.program("kind"), kind.program("kubectl"), find_helm())
        folders = [str(program.parent) for program in programs]
        path = os.pathsep.join([*folders, os.environ["PATH"]])
        yield {"KUBECONFIG": str(cluster.kubeconfig), "PATH": path}


@pytest.fixture
def user(env: Mapping[str, str]) -> Iterator[User]:
    user = User.connect(Path(env["KUBECONFIG"]), "default", PATIENCE_SECONDS)
    yield user
    user.close()


def story() -> list[Command]:
    """Return the commands of the README for a kind cluster."""
    (commands,) = [block.commands for block in README.blocks if CREATE in block.commands]
    assert commands[0] == CREATE
    return commands[1:]


def port_forward() -> Command:
    """Return the command of the guide that forwards a port to Redis, with a free local port."""
    (found,) = [each for each in GUIDE.commands if each.text.startswith("kubectl port-forward")]
    return replace(found, text=re.sub(r" 6379$", " :6379", found.text))


def test_the_readme_runs_two_orders_on_kind(env: dict[str, str], tmp_path: Path) -> None:
    commands = story()
    with Reader(tmp_path, env, README) as reader:
        for command in commands:
            reader.follow(command)
        reader.leave_running(port_forward())
    assert [line.split()[:2] for line in commands[-1].printed[1:]] == [
        ["order-123", "COMPLETED"],
        ["order-124", "FAILED"],
    ]


def run_redis(user: User, folder: Path) -> str:
    """Run a Redis with a password and TLS; return the values of the chart for it."""
    authority = Authority(folder, "ours")
    pem = authority.certify(f"DNS:{HOST}").read_text()
    if user.get("Namespace", NAMESPACE) is None:
        user.create(namespace_named(NAMESPACE))
    system = user.within(NAMESPACE)
    system.apply(
        secret("redis", url=f"rediss://{HOST}:{TLS_PORT}/0", password=PASSWORD),
        secret("redis-ca", **{"ca.crt": authority.certificate.read_text()}),
        secret("redis-server", **{"server.pem": pem}),
        *redis_server(defaults()["redis"]["bundled"]["image"]),
    )
    system.wait_for("Deployment", "redis", is_rolled_out)
    plain = f"redis://:{quote(PASSWORD, safe='')}@{HOST}:{PLAIN_PORT}/0"
    user.apply(secret("order-redis", url=plain))
    keys = ("name=redis", "urlKey=url", "passwordKey=password")
    values = [f"redis.existingSecret.{key}" for key in keys]
    return ",".join(["redis.bundled.enabled=false", "redis.tls.caSecret=redis-ca", *values])


def secret(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def redis_server(image: str) -> list[dict[str, Any]]:
    """Return the manifests of a Redis with TLS at one port; both ports need the password."""
    pem = "/tls/server.pem"
    options = {"port": PLAIN_PORT, "tls-port": TLS_PORT, "requirepass": PASSWORD, "save": ""}
    options |= {"tls-cert-file": pem, "tls-key-file": pem, "tls-auth-clients": "no"}
    command = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    container = {
        "name": "redis",
        "image": image,
        "command": ["redis-server", *command],
        "readinessProbe": {"tcpSocket": {"port": TLS_PORT}},
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
    }
    tls = {"name": "tls", "secret": {"secretName": "redis-server"}}
    labels = {"app": "redis"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "volumes": [tls]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    ports = [{"name": f"port-{port}", "port": port} for port in (PLAIN_PORT, TLS_PORT)]
    named = {"metadata": {"name": "redis"}}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            **named,
            "spec": {"selector": labels, "ports": ports},
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", **named, "spec": spec},
    ]


def test_the_runbooks_run_in_the_image_with_a_password_and_tls(
    env: dict[str, str], user: User, tmp_path: Path
) -> None:
    running, failed, alone = problem_orders()
    at = f"--namespace {NAMESPACE}"
    install = [
        f"helm upgrade --install {RELEASE} deploy/helm {at} --set {{}} --wait",
        "kubectl apply -f examples/order-fulfilment/workers.yaml",
        # The Secret may be newer than the pods.
        "kubectl rollout restart deployment/order-workers",
        "kubectl rollout status deployment/order-workers",
    ]
    with Reader(tmp_path, env, RUNBOOKS) as reader:
        reader.follow(Command("make load"))
        values = run_redis(user, tmp_path)
        for text in install:
            reader.follow(Command(text.format(values)))
        user.apply(running, failed)
        reaches(user, running, "ACTIVE")
        reaches(user, failed, "FAILED_COMPENSATION")
        name, order = alone["metadata"]["name"], shlex.quote(json.dumps(alone))
        add = f"python3 -m jobgroup add - --id {name} --wait <<< {order}"
        said = reader.type(f"kubectl exec --stdin {at} deployment/{RELEASE} -- {add}")
        assert "FAILED_COMPENSATION" in said
        for command in RUNBOOKS.commands:
            if not command.text.endswith(PREVIOUS):
                reader.follow(command)


def reaches(user: User, body: Mapping[str, Any], state: str) -> None:
    """Wait until a JobGroup is in a state."""
    user.wait_for(
        JOBGROUP.name,
        body["metadata"]["name"],
        lambda found: (found.get("status") or {}).get("state") == state,
        state,
    )
