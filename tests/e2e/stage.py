"""The vocabulary of the stories: a namespace with workers and sagas, and the operator's namespace.

A story has one queue, and a trail: what its workers began and ended, in order.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from jobgroup.resource.kinds import JOBGROUP
from testbed.cluster.installation import NAMESPACE, REDIS_POD, REDIS_URL
from testbed.cluster.kind import TestImages
from testbed.cluster.kubectl import Kubectl
from testbed.servers.stock import CLIENTS
from testbed.support.chart import RELEASE
from testbed.support.examples import with_images
from testbed.support.resources import manifest
from testbed.support.user import User
from testbed.support.workloads import is_rolled_out

SCRIPTS = Path(__file__).resolve().parent / "workers"
# How a client for Node connects to the kind of Redis that a URL names.
CONNECTIONS = CLIENTS / "connections.mjs"
# The limit of every wait, for slow and busy machines.
PATIENCE_SECONDS = 180
# Longer than any story.
NEVER = 3600
# The lane of jobs that must wait until the middle of a story.
LATER = "-later"


class Stage:
    """A namespace of its own."""

    def __init__(self, user: User, kubectl: Kubectl, images: TestImages) -> None:
        self.user = user
        self.kubectl = kubectl
        self.operator = OperatorPods(user.within(NAMESPACE), kubectl.within(NAMESPACE))
        self.queue = user.namespace
        # A story may let its workers use another Redis than the one installed with the operator.
        self.redis_url = REDIS_URL
        self._images = images

    def job(self, name: str, delay: float = 0, lane: str = "", **does: Any) -> dict[str, Any]:
        """Return a job that takes `seconds`, or `fails`, in the story's queue or a lane of it."""
        opts = {"delay": int(delay * 1000)}
        return {"name": name, "queueName": self.queue + lane, "data": does, "opts": opts}

    def saga(
        self,
        name: str,
        *jobs: Mapping[str, Any],
        undos: Mapping[str, Mapping[str, Any]] | None = None,
        **spec: Any,
    ) -> None:
        """Create a saga; `undos` maps the name of a job to what its undo does."""
        named = {job: {"name": f"undo-{job}", "data": does} for job, does in (undos or {}).items()}
        self.user.create(manifest(name, *jobs, undos=named, **spec))

    def sees(self, saga: str, **status: str | int) -> None:
        """Wait until the status of a saga has these values."""

        def reached(body: Mapping[str, Any]) -> bool:
            return status.items() <= (body.get("status") or {}).items()

        self.user.wait_for(JOBGROUP.name, saga, reached, status)

    def has_workers(self) -> None:
        """Start one pod that works on the story's jobs and their undos."""
        self.deploy("workers", "node", [self.queue, f"{self.queue}:compensation"], replicas=1)
        self.user.wait_for("Deployment", "workers", is_rolled_out)

    def deploy(
        self,
        name: str,
        flavour: str,
        queues: list[str],
        replicas: int = 0,
        kind: str = "Deployment",
    ) -> None:
        """Create a Deployment, or a StatefulSet, of stock workers."""
        script = {"node": "worker.mjs", "python": "worker.py"}[flavour]
        env = {"REDIS_URL": self.redis_url, "QUEUES": ",".join(queues), "TRAIL": self.trail_key}
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
        files = [SCRIPTS / script, *([CONNECTIONS] if flavour == "node" else [])]
        text = {file.name: file.read_text() for file in files}
        self.user.create(
            {"apiVersion": "v1", "kind": "ConfigMap", **named, "data": text},
            {"apiVersion": "apps/v1", "kind": kind, **named, "spec": spec},
        )

    def apply_example(self, file: str) -> None:
        """Apply a file of examples/order-fulfilment, with the images that this cluster has."""
        self.user.apply(*yaml.safe_load_all(with_images(file, **self._images.workers)))

    def sleeps(self, kind: str, name: str) -> None:
        """Wait until a workload wants no pods; some may still be terminating."""
        self.user.wait_for(kind, name, lambda body: body["spec"]["replicas"] == 0)

    def begin_two_sagas(self) -> None:
        """Begin a saga that will succeed and one that will fail; wait until each is half done.

        No worker takes the other half before `the_rest_is_run`.
        """
        self.saga("good", self.job("fly"), self.job("land", lane=LATER))
        crash = self.job("crash", lane=LATER, fails="no runway")
        self.saga("bad", self.job("rise"), crash, undos={"rise": {"seconds": 1}})
        for saga in ("good", "bad"):
            self.sees(saga, state="ACTIVE", progress="1/2")

    def the_rest_is_run(self) -> None:
        """Start a pod that works on the jobs that the two sagas wait for."""
        self.deploy("latecomers", "node", [self.queue + LATER], replicas=1)

    def two_sagas_end_well(self) -> None:
        """Wait until one saga has completed and one is undone; check that each job ran once."""
        self.sees("good", state="COMPLETED", progress="2/2")
        self.sees("bad", state="FAILED", undone="1/1")
        jobs = ["fly", "land", "rise", "undo-rise"]
        whole = [f"{what} {job}" for job in jobs for what in ("began", "ended")]
        assert sorted(self.trail()) == sorted([*whole, "began crash"])

    def redis(self, *command: str) -> str:
        """Run a command in Redis."""
        return self.operator.redis(*command)

    def trail(self) -> list[str]:
        """Return what the workers began and ended, in order."""
        return self.redis("LRANGE", self.trail_key, "0", "-1").splitlines()

    def event_reasons(self, name: str) -> set[str]:
        """Return the reasons of the Events about an object."""
        found = self.user.find("Event", field_selector=f"involvedObject.name={name}")
        return {event["reason"] for event in found}

    @property
    def trail_key(self) -> str:
        """Return the key of the trail."""
        return f"trail:{self.user.namespace}"


class OperatorPods:
    """The operator's own namespace."""

    def __init__(self, user: User, kubectl: Kubectl) -> None:
        self.user = user
        self._kubectl = kubectl

    def leader(self) -> str:
        """Return the name of the replica that holds the leader lease."""
        lease = self.user.get("Lease", RELEASE)
        assert lease, "no replica has taken the leader lease"
        return str(lease["spec"].get("holderIdentity"))

    def pods(self) -> set[str]:
        """Return the replicas that are not terminating."""
        pods = self.user.find("Pod", label_selector="app.kubernetes.io/component=operator")
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["name"] for pod in staying}

    def redis(self, *command: str) -> str:
        """Run a command in the Redis that was installed with the operator."""
        return self._kubectl("exec", REDIS_POD, "--", "redis-cli", *command)

    def redis_many(self, commands: list[list[str]]) -> list[str]:
        """Run many commands at once, each with a reply of one line."""
        lines = "\n".join(shlex.join(command) for command in commands)
        said = self._kubectl("exec", "--stdin", REDIS_POD, "--", "redis-cli", stdin=lines + "\n")
        return said.splitlines()
