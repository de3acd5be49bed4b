"""A Kubernetes cluster for the end-to-end tests: one kind node of our own, or one that exists."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from testbed import audit, binaries, images, installation, own_images
from testbed.builders import Docker
from testbed.cache import cache_dir
from testbed.chart import RELEASE
from testbed.commands import run
from testbed.engine import Engine
from testbed.errors import Unavailable

NAME = "jobgroup-e2e"
KIND_CONTEXT = "kind-"
READY = "3m"
# In the node, where the kubelet hands it out: /api/v1/nodes/<node>/proxy/logs/kubernetes/audit.log
AUDIT_LOG = "/var/log/kubernetes/audit.log"
# A volume is given away once, to one who installs a Redis; a kept cluster sees some of them.
VOLUMES = 5
CREATED = "DirectoryOrCreate"


@dataclass(frozen=True)
class Cluster:
    """A cluster, reached through a kubeconfig that holds this cluster and no other."""

    context: str
    kubeconfig: Path

    @property
    def kind_name(self) -> str | None:
        """Return the name kind knows the cluster by, if it is kind's."""
        kind = self.context.startswith(KIND_CONTEXT)
        return self.context.removeprefix(KIND_CONTEXT) if kind else None


@dataclass(frozen=True)
class TestImages:
    """The images the tests run, as a cluster's nodes find them."""

    operator: str
    redis: str
    node_workers: str
    python_workers: str

    __test__ = False  # not a test class, whatever its name

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that name them."""
        return {variable: getattr(self, field) for variable, field in IMAGE_VARIABLES.items()}

    @property
    def workers(self) -> dict[str, str]:
        """Return those of the workers, by what they are written in."""
        return {"node": self.node_workers, "python": self.python_workers}


IMAGE_VARIABLES = {
    "E2E_IMAGE": "operator",
    "E2E_REDIS_IMAGE": "redis",
    "E2E_NODE_IMAGE": "node_workers",
    "E2E_PYTHON_IMAGE": "python_workers",
}


@contextmanager
def created(
    engine: Engine, node_image: str, keep: bool = False, name: str = NAME
) -> Iterator[Cluster]:
    """Create a kind cluster in place of any leftover of an earlier run, and delete it."""
    kubeconfig = cache_dir() / f"kubeconfig-{name}"
    config = cache_dir() / "kind.json"
    config.write_text(json.dumps(_kind_config(), indent=2))
    named = ("--name", name, "--kubeconfig", kubeconfig)

    def delete() -> None:
        doing = f"Deleting the cluster {name}"
        engine.run(program("kind"), "delete", "cluster", *named, doing=doing)
        kubeconfig.unlink(missing_ok=True)

    delete()
    try:
        doing = f"Creating the cluster {name}"
        options = ("--image", node_image, "--config", config, "--wait", READY)
        engine.run(program("kind"), "create", "cluster", *named, *options, doing=doing)
        # kind waits for the node; pods find each other by name only when this is there, too.
        kubectl = (program("kubectl"), "--kubeconfig", kubeconfig, "--namespace=kube-system")
        dns = ("rollout", "status", "deployment/coredns", f"--timeout={READY}")
        run(*kubectl, *dns, doing="Waiting for the cluster's DNS")
        _prepare_volumes(engine, kubeconfig, name)
        yield Cluster(KIND_CONTEXT + name, kubeconfig)
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            delete()


def existing(context: str | None) -> Cluster:
    """Give the cluster that the person's kubeconfig points at, if they have named that very one.

    The kubeconfig handed on is a copy with this context alone. Whatever the person switches to
    while the tests run, the tests stay where they were sent.
    """
    if not context:
        raise Unavailable(
            "E2E_CLUSTER=existing needs E2E_CONTEXT=<name>, the kubectl context to run on."
        )
    kubectl = program("kubectl")
    asking = "Asking kubectl for the current context"
    current = run(kubectl, "config", "current-context", doing=asking)
    if current != context:
        raise Unavailable(
            f"The current context is {current}, not {context}; the tests create and delete things, "
            f"so they run only where you are: kubectl config use-context {context}"
        )
    copying = "Copying the context from the kubeconfig"
    view = ("config", "view", "--minify", "--flatten", "--raw", "--context", context)
    kubeconfig = cache_dir() / "kubeconfig-existing"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(run(kubectl, *view, doing=copying) + "\n")
    return Cluster(context, kubeconfig)


def _prepare_volumes(engine: Engine, kubeconfig: Path, name: str) -> None:
    """Lay out volumes that pods may write to who are not root, as kind's own nodes have them.

    Those that Kubernetes itself makes in a folder of the node belong to root.
    """
    volumes = {f"volume-{number}": f"/volumes/{number}" for number in range(VOLUMES)}
    make = ("docker", "exec", f"{name}-control-plane", "mkdir", "-p", "--mode=777")
    engine.run(*make, *volumes.values(), doing="Making folders for volumes")
    items = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "storageClassName": "standard",
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": path},
            },
        }
        for volume, path in volumes.items()
    ]
    manifest = cache_dir() / "volumes.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kubectl = (program("kubectl"), "--kubeconfig", kubeconfig)
    run(*kubectl, "apply", "--filename", manifest, doing="Offering the volumes")


def _kind_config() -> dict[str, Any]:
    """Ask for one node whose API server notes in AUDIT_LOG what the operator's account does."""
    policy, log = PurePosixPath("/etc/jobgroup/audit-policy.json"), PurePosixPath(AUDIT_LOG)
    arguments = {"audit-policy-file": policy, "audit-log-path": log}
    folders = {"audit-policy": policy.parent, "audit-log": log.parent}
    server = {
        "extraArgs": [{"name": name, "value": str(value)} for name, value in arguments.items()],
        "extraVolumes": [
            {"name": name, "hostPath": str(path), "mountPath": str(path), "pathType": CREATED}
            for name, path in folders.items()
        ],
    }
    mount = {"hostPath": str(_audit_policy()), "containerPath": str(policy), "readOnly": True}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": "control-plane", "extraMounts": [mount]}],
        "kubeadmConfigPatches": [json.dumps({"kind": "ClusterConfiguration", "apiServer": server})],
    }


def _audit_policy() -> Path:
    """Write down what the API server is to note: what the operator asks of it, and no more."""
    account = f"system:serviceaccount:{installation.NAMESPACE}:{RELEASE}"
    rules = [{"level": "Metadata", "users": [account]}, {"level": "None"}]
    file = cache_dir() / "audit-policy.json"
    file.write_text(json.dumps({**audit.POLICY, "rules": rules}, indent=2))
    return file


def named_images(cluster: Cluster, environ: Mapping[str, str] = os.environ) -> TestImages | None:
    """Return the images that the environment names; None means: make and load them."""
    given = {field: environ.get(name, "") for name, field in IMAGE_VARIABLES.items()}
    if all(given.values()):
        return TestImages(**given)
    if any(given.values()):
        missing = [name for name in IMAGE_VARIABLES if not environ.get(name)]
        raise Unavailable(f"The images go together, and {', '.join(missing)} is not set.")
    if cluster.kind_name is None:
        raise Unavailable(
            f"{cluster.context} is not a kind cluster, so nothing can be loaded into it; push "
            f"the images where it finds them and name them in {', '.join(IMAGE_VARIABLES)}."
        )
    return None


def made_images(engine: Engine) -> TestImages:
    """Make the images the tests run, in the engine."""
    docker = Docker(engine)
    return TestImages(
        own_images.operator(docker),
        images.redis(docker),
        own_images.node_workers(docker),
        own_images.python_workers(docker),
    )


def load(engine: Engine, cluster: Cluster, made: TestImages) -> None:
    """Copy images from the engine into a kind cluster."""
    command = (program("kind"), "load", "docker-image", "--name", cluster.kind_name or "")
    every = made.environment.values()
    engine.run(*command, *every, doing="Loading the images into the cluster")


def is_kept() -> bool:
    """Say whether what a failed test leaves is to stay, and the cluster with it."""
    return os.environ.get("KEEP", "0") not in ("", "0")


def program(name: str) -> Path:
    return binaries.find(name)[name]
