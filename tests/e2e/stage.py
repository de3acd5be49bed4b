"""The words the stories are told in: a namespace with workers and sagas, and the operator's own.

A story has one queue, and a trail: what its workers began and ended, in order.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.chart import RELEASE
from testbed.cluster import TestImages
from testbed.examples import with_images
from testbed.installation import NAMESPACE, REDIS_POD, REDIS_URL
from testbed.kubectl import PATIENCE, Kubectl
from testbed.resources import manifest

SCRIPTS = Path(__file__).resolve().parent / "workers"
# Longer than any story.
NEVER = 3600
# The lane of jobs that are to wait until a story is half told.
LATER = "-later"


class Stage:
    """A namespace of its own."""

    def __init__(self, kubectl: Kubectl, images: TestImages) -> None:
        self.kubectl = kubectl
        self.operator = OperatorPods(kubectl.elsewhere(NAMESPACE))
        self.queue = kubectl.namespace
        self._images = images

    def job(self, name: str, delay: float = 0, lane: str = "", **does: Any) -> dict[str, Any]:
        """Spell a job that takes `seconds`, or `fails`, in the story's queue or a lane of it."""
        opts = {"delay": int(delay * 1000)}
        return {"name": name, "queueName": self.queue + lane, "data": does, "opts": opts}

    def saga(
        self,
        name: str,
        *jobs: Mapping[str, Any],
        undos: Mapping[str, Mapping[str, Any]] | None = None,
        **spec: Any,
    ) -> None:
        """Apply a saga; an undo is called like its job, and told what to do."""
        told = {job: {"name": f"undo-{job}", "data": does} for job, does in (undos or {}).items()}
        self.kubectl.apply(manifest(name, *jobs, undos=told, **spec))

    def sees(self, saga: str, **status: str) -> None:
        """Wait until a saga's status says so."""
        for field, value in status.items():
            self.kubectl.wait(f"jobgroup/{saga}", f".status.{field}", value)

    def has_workers(self) -> None:
        """Start one pod that works on the story's jobs and their undos."""
        self.deploy("workers", "node", [self.queue, f"{self.queue}:compensation"], replicas=1)
        self.kubectl("rollout", "status", "deployment/workers", PATIENCE)

    def deploy(
        self,
        name: str,
        flavour: str,
        queues: list[str],
        replicas: int = 0,
        kind: str = "Deployment",
    ) -> None:
        """Make a Deployment, or a StatefulSet, of stock workers."""
        script = {"node": "worker.mjs", "python": "worker.py"}[flavour]
        env = {"REDIS_URL": REDIS_URL, "QUEUES": ",".join(queues), "TRAIL": self._trail}
        container = {
            "name": "worker",
            "image": self._images.workers[flavour],
            "imagePullPolicy": "IfNotPresent",
            "command": [{"node": "node", "python": "python3"}[flavour], f"/app/story/{script}"],
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "volumeMounts": [{"name": "story", "mountPath": "/app/story"}],
        }
        pod = {
            "terminationGracePeriodSeconds": 60,
            "shareProcessNamespace": True,
            "containers": [container],
            "volumes": [{"name": "story", "configMap": {"name": name}}],
        }
        labels = {"app": name}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
        if kind == "StatefulSet":
            spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        named = {"metadata": {"name": name}}
        text = {script: (SCRIPTS / script).read_text()}
        self.kubectl.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", **named, "data": text},
            {"apiVersion": "apps/v1", "kind": kind, **named, "spec": spec},
        )

    def apply_example(self, file: str) -> None:
        """Apply a file of examples/order-fulfilment, with the images that this cluster has."""
        text = with_images(file, **self._images.workers)
        self.kubectl("apply", "--filename=-", stdin=text)

    def begin_two_sagas(self) -> None:
        """Begin one saga that will succeed and one that will fail, and let each get half-way.

        Nobody works on the other half before `the_rest_is_run`.
        """
        self.saga("good", self.job("fly"), self.job("land", lane=LATER))
        crash = self.job("crash", lane=LATER, fails="no runway")
        self.saga("bad", self.job("rise"), crash, undos={"rise": {"seconds": 1}})
        for saga in ("good", "bad"):
            self.sees(saga, state="ACTIVE", progress="1/2")

    def the_rest_is_run(self) -> None:
        """Start a pod that works on what the two sagas wait for."""
        self.deploy("latecomers", "node", [self.queue + LATER], replicas=1)

    def two_sagas_end_well(self) -> None:
        """See them end as if nothing had happened, with each job done once."""
        self.sees("good", state="COMPLETED", progress="2/2")
        self.sees("bad", state="FAILED", undone="1/1")
        jobs = ["fly", "land", "rise", "undo-rise"]
        whole = [f"{what} {job}" for job in jobs for what in ("began", "ended")]
        assert sorted(self.trail()) == sorted([*whole, "began crash"])

    def redis(self, *command: str) -> str:
        """Ask Redis something."""
        return self.operator.redis(*command)

    def trail(self) -> list[str]:
        """Return what the workers began and ended, in order."""
        return self.redis("LRANGE", self._trail, "0", "-1").splitlines()

    @property
    def _trail(self) -> str:
        return f"trail:{self.kubectl.namespace}"


class OperatorPods:
    """The operator's own namespace."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl

    def leader(self) -> str:
        """Return the pod that works now."""
        holder = self.kubectl.json("lease", RELEASE)["spec"]["holderIdentity"]
        return str(holder).rpartition("_")[0]

    def pods(self) -> set[str]:
        """Return the replicas that are not on their way out."""
        label = "--selector=app.kubernetes.io/component=operator"
        pods = self.kubectl.json("pods", label)["items"]
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["name"] for pod in staying}

    def redis(self, *command: str) -> str:
        """Ask the Redis that was installed with the operator."""
        return self.kubectl("exec", REDIS_POD, "--", "redis-cli", *command)

    def redis_many(self, commands: list[list[str]]) -> list[str]:
        """Ask it many things at once, each with an answer of one line."""
        lines = "\n".join(shlex.join(command) for command in commands)
        said = self.kubectl("exec", "--stdin", REDIS_POD, "--", "redis-cli", stdin=lines + "\n")
        return said.splitlines()


def told(kubectl: Kubectl, saga: str) -> set[str]:
    """Return why there were Events about a saga."""
    selector = f"--field-selector=involvedObject.name={saga}"
    return {each["reason"] for each in kubectl.json("events", selector)["items"]}
