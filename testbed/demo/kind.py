"""`make demo-kind`: the same two orders on a kind cluster, with pods that sleep and wake.

The operator is installed by its chart, the example's workers are Deployments, and the one that
undoes payments has no pods until there is something to undo.
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

from testbed import cluster, engine, images, installation
from testbed.builders import Docker
from testbed.cache import locked
from testbed.commands import run
from testbed.demo.__main__ import PATIENCE_SECONDS, Demo, main
from testbed.demo.outcome import Unexpected
from testbed.demo.parts import PREFIX, WORK_MS, Write, offer_kubectl, tell_time
from testbed.examples import book_keys, with_images
from testbed.processes import Server

NAME = "jobgroup-demo"
UNDOER = "payments-undo-worker"
COOLDOWN_SECONDS = 5
PODS = "/api/v1/namespaces/default/pods"


class KindParts:
    """All of it as pods of a cluster."""

    watched: Sequence[str] = (PODS,)

    def __init__(self, folder: Path, kubeconfig: Path, made: cluster.TestImages) -> None:
        self.folder = folder
        self._program = cluster.program("kubectl")
        self._made = made
        self._logs: dict[str, Server] = {}
        # Where the person who tries is told to look for them.
        shutil.copy(kubeconfig, folder / "admin.kubeconfig")
        offer_kubectl(folder, self._program)

    @property
    def kubectl(self) -> list[str]:
        """Return how to run kubectl as the admin."""
        return [str(self._program), "--kubeconfig", str(self.folder / "admin.kubeconfig")]

    def ask(self, *arguments: str) -> str:
        """Run kubectl."""
        return run(*self.kubectl, *arguments, doing=f"kubectl {arguments[0]}")

    def deploy_example(self) -> None:
        """Start the example's workers, slow enough to be watched; those that undo are asleep."""
        alias = self.folder / "redis.json"
        alias.write_text(json.dumps(installation.REDIS_ALIAS))
        self.ask("apply", "-f", str(alias))
        for file in ("workers.yaml", "deployment-node.yaml"):
            (self.folder / file).write_text(with_images(file, **self._made.workers))
            self.ask("apply", "-f", str(self.folder / file))
        deployments = ("deployment/order-workers", f"deployment/{UNDOER}")
        self.ask("set", "env", *deployments, f"WORK_MS={WORK_MS}")
        change = json.dumps({"spec": {"cooldownSeconds": COOLDOWN_SECONDS}})
        self.ask("patch", "workerpool", "payments-undo", "--type=merge", "-p", change)
        self.ask("rollout", "status", "deployment/order-workers", "--timeout=180s")
        asleep = "--for=jsonpath={.spec.replicas}=0"
        self.ask("wait", f"deployment/{UNDOER}", asleep, "--timeout=180s")
        self.ask("wait", "pods", "--for=delete", f"--selector=app={UNDOER}", "--timeout=180s")

    def logs(self) -> Sequence[tuple[str, Path]]:
        """Return what the pods say, each under the name of its Deployment."""
        return [(name.rsplit("-", 2)[0], server.log) for name, server in self._logs.items()]

    def heed(self, pod: Mapping[str, Any]) -> None:
        """Listen to a pod once it runs."""
        name = pod["metadata"]["name"]
        if pod["status"].get("phase") == "Running" and name not in self._logs:
            command = [*self.kubectl, "logs", "--follow", name]
            self._logs[name] = Server(name, command, self.folder / f"{name}.log", lambda _: True)

    def must_run(self) -> None:
        """Leave it to Kubernetes."""

    def books(self) -> dict[str, dict[str, str]]:
        """Return what the shop has in its books."""
        redis = ("exec", "-n", installation.NAMESPACE, installation.REDIS_POD, "--", "redis-cli")
        return {
            book: json.loads(self.ask(*redis, "--json", "HGETALL", key))
            for book, key in book_keys(PREFIX).items()
        }

    def stop(self) -> None:
        """Follow no pod any more."""
        for server in self._logs.values():
            server.kill()


class KindDemo(Demo):
    """The orders, and then the workers that go to sleep again."""

    also: Mapping[str, list[str]] = {
        "Who undoes payments, and when:": [
            "kubectl get workerpools",
            "sed s/124/127/ examples/order-fulfilment/order-refused.yaml | kubectl apply -f -",
        ],
    }

    async def _afterwards(self, watching: asyncio.Task[None]) -> None:
        """Wait until nobody is there to undo payments, for there are none to be undone."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(name.startswith(UNDOER) for name in self._watcher.pods):
            if time.monotonic() > deadline:
                raise Unexpected(f"{UNDOER} should sleep again, and still has pods.")
            await self._pause(watching)
        await self._kubectl("get", "workerpools")


@contextmanager
def started(folder: Path, write: Write) -> Iterator[KindParts]:
    """Make a cluster, install the operator and deploy the example; delete it all in the end."""
    timed = partial(tell_time, write)
    with locked("e2e"), ExitStack() as undo:
        docker = timed("a container engine", lambda: undo.enter_context(engine.started()))
        node = timed("the image of a node", lambda: images.node(Docker(docker)))
        made = timed("the images of operator and workers", lambda: cluster.made_images(docker))
        create = cluster.created(docker, node, name=NAME)
        chosen = timed(f"the kind cluster {NAME}", lambda: undo.enter_context(create))
        timed("the images in it", lambda: cluster.load(docker, chosen, made))
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
