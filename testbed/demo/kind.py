"""`make demo-kind`: the same two orders on a kind cluster, with workers that scale to zero.

The operator is installed by its chart, the example's workers are Deployments, and the one that
undoes payments has no pods until there is a payment to undo.
"""

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from jobgroup.resource.kinds import WORKERPOOL
from testbed.build.cache import locked
from testbed.cluster import engine, installation, kind
from testbed.demo.__main__ import PATIENCE_SECONDS, Demo, main
from testbed.demo.outcome import Unexpected
from testbed.demo.parts import PREFIX, WORK_MS, Write, offer_kubectl, timed_start
from testbed.images import base
from testbed.images.builders import Docker
from testbed.servers.processes import Server
from testbed.support.commands import run
from testbed.support.examples import book_keys, with_images
from testbed.support.user import User
from testbed.support.workloads import is_rolled_out

NAME = "jobgroup-demo"
UNDOER = "payments-undo-worker"
COOLDOWN_SECONDS = 5


class KindParts:
    """All parts as pods of a cluster."""

    def __init__(self, folder: Path, kubeconfig: Path, made: kind.TestImages) -> None:
        self.folder = folder
        self._program = kind.program("kubectl")
        self._made = made
        self._logs: dict[str, Server] = {}
        # The demo tells the user to use these.
        self.kubeconfig = folder / "admin.kubeconfig"
        shutil.copy(kubeconfig, self.kubeconfig)
        offer_kubectl(folder, self._program)

    @property
    def kubectl(self) -> list[str]:
        """Return the command that runs kubectl as the admin."""
        return [str(self._program), "--kubeconfig", str(self.kubeconfig)]

    def deploy_example(self) -> None:
        """Start the example's workers, slow enough to be followed; scale those that undo to 0."""
        user = User.connect(self.kubeconfig)
        user.apply(installation.REDIS_SECRET)
        for file in ("workers.yaml", "deployment-node.yaml"):
            for body in yaml.safe_load_all(with_images(file, **self._made.workers)):
                user.apply(_slowed(body))
        change = {"spec": {"cooldownSeconds": COOLDOWN_SECONDS}}
        user.patch(WORKERPOOL.name, "payments-undo", change)
        user.wait_for("Deployment", "order-workers", is_rolled_out)
        user.wait_for("Deployment", UNDOER, lambda body: body["spec"]["replicas"] == 0)
        user.wait_gone("Pod", label_selector=f"app={UNDOER}")
        user.close()

    def logs(self) -> Sequence[tuple[str, Path]]:
        """Return the log of each pod, under the name of its Deployment."""
        return [(name.rsplit("-", 2)[0], server.log) for name, server in self._logs.items()]

    def notice(self, pod: Mapping[str, Any]) -> None:
        """Follow the log of a pod once it runs."""
        name = pod["metadata"]["name"]
        if pod["status"].get("phase") == "Running" and name not in self._logs:
            command = [*self.kubectl, "logs", "--follow", name]
            self._logs[name] = Server(name, command, self.folder / f"{name}.log", lambda _: True)

    def must_run(self) -> None:
        """Do nothing: Kubernetes restarts pods."""

    def books(self) -> dict[str, dict[str, str]]:
        """Return the content of the shop's books."""
        pod = ("-n", installation.NAMESPACE, installation.REDIS_POD)
        command = (*self.kubectl, "exec", *pod, "--", "redis-cli", "--json", "HGETALL")
        doing = "Reading the shop's books in Redis"
        return {
            book: json.loads(run(*command, key, doing=doing))
            for book, key in book_keys(PREFIX).items()
        }

    def stop(self) -> None:
        """Stop following the logs of pods."""
        for server in self._logs.values():
            server.kill()


def _slowed(body: dict[str, Any]) -> dict[str, Any]:
    """Add the time that a job takes to the containers of a Deployment."""
    if body["kind"] == "Deployment":
        for container in body["spec"]["template"]["spec"]["containers"]:
            container["env"].append({"name": "WORK_MS", "value": WORK_MS})
    return body


class KindDemo(Demo):
    """The orders, and then the workers that scale to zero again."""

    also: Mapping[str, list[str]] = {
        "The workers that undo payments, and a payment for them to undo:": [
            "kubectl get workerpools",
            "sed s/124/127/ examples/order-fulfilment/order-refused.yaml | kubectl apply -f -",
        ],
    }

    async def _afterwards(self, watching: asyncio.Task[None]) -> None:
        """Wait until the workers that undo payments have no pods: no payment is left to undo."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(name.startswith(UNDOER) for name in self._watcher.pods):
            if time.monotonic() > deadline:
                raise Unexpected(f"{UNDOER} should have scaled to zero, and still has pods.")
            await self._pause(watching)
        await self._kubectl("get", "workerpools")


@contextmanager
def started(folder: Path, write: Write) -> Iterator[KindParts]:
    """Create a cluster, install the operator and deploy the example; delete it all in the end."""
    timed = partial(timed_start, write)
    with locked("e2e", "finish with its cluster"), ExitStack() as undo:
        docker = timed("a container engine", lambda: undo.enter_context(engine.started()))
        node = timed("the image of a node", lambda: base.node(Docker(docker)))
        made = timed("the images of operator and workers", lambda: kind.made_images(docker))
        create = kind.created(docker, node, name=NAME)
        chosen = timed(f"the kind cluster {NAME}", lambda: undo.enter_context(create))
        timed("the images in it", lambda: kind.load(docker, NAME, made.names))
        os.environ["KUBECONFIG"] = str(chosen.kubeconfig)
        timed(
            "the operator and Redis, by the chart",
            lambda: installation.install(made.operator, made.redis),
        )
        parts = KindParts(folder, chosen.kubeconfig, made)
        undo.callback(parts.stop)
        timed("the example's workers, one Deployment asleep", parts.deploy_example)
        yield parts


if __name__ == "__main__":
    sys.exit(main(started, KindDemo, "make demo-kind"))
