"""A Kubernetes cluster for the end-to-end tests: a new kind cluster, or an existing cluster."""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from testbed.build import binaries
from testbed.build.cache import cache_dir
from testbed.cluster import installation
from testbed.cluster.engine import Engine
from testbed.images import base, project
from testbed.images.builders import Docker
from testbed.support import audit
from testbed.support.chart import RELEASE
from testbed.support.commands import run
from testbed.support.errors import Unavailable

NAME = "jobgroup-e2e"
KIND_CONTEXT = "kind-"
READY = "3m"
RECORD = "cluster-"
KEPT = "kept"
# In the node; the kubelet serves it at /api/v1/nodes/<node>/proxy/logs/kubernetes/audit.log
AUDIT_LOG = "/var/log/kubernetes/audit.log"
# Each installation of Redis uses up one volume; in a kept cluster there can be several.
VOLUMES = 5
CREATED = "DirectoryOrCreate"


@dataclass(frozen=True)
class Cluster:
    """A cluster, and a kubeconfig that contains only this cluster."""

    context: str
    kubeconfig: Path

    @property
    def kind_name(self) -> str | None:
        """Return the name of the cluster in kind, if it is a kind cluster."""
        kind = self.context.startswith(KIND_CONTEXT)
        return self.context.removeprefix(KIND_CONTEXT) if kind else None


@dataclass(frozen=True)
class TestImages:
    """The names of the images that the tests run, as a cluster pulls or finds them."""

    operator: str
    redis: str
    node_workers: str
    python_workers: str

    __test__ = False  # the name begins with Test, but it is no test

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that name them."""
        return {variable: getattr(self, field) for variable, field in IMAGE_VARIABLES.items()}

    @property
    def names(self) -> Collection[str]:
        """Return the names of all."""
        return self.environment.values()

    @property
    def workers(self) -> dict[str, str]:
        """Return those of the workers, by programming language."""
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
    """Create a kind cluster, and delete it afterwards.

    The rest of a run that was killed is deleted first. A cluster that was kept, or that no run
    created, is left alone.
    """
    _refuse_existing(engine, name)
    kubeconfig = _kubeconfig(name)
    config = cache_dir() / "kind.json"
    config.write_text(json.dumps(_kind_config(), indent=2))
    named = ("--name", name, "--kubeconfig", kubeconfig)

    delete(engine, name)
    _record(name).write_text("")
    try:
        doing = f"Creating the cluster {name}"
        options = ("--image", node_image, "--config", config, "--wait", READY)
        engine.run(program("kind"), "create", "cluster", *named, *options, doing=doing)
        # kind waits for the node, but not for the cluster's DNS.
        kubectl = (program("kubectl"), "--kubeconfig", kubeconfig, "--namespace=kube-system")
        dns = ("rollout", "status", "deployment/coredns", f"--timeout={READY}")
        run(*kubectl, *dns, doing="Waiting for the cluster's DNS")
        _prepare_volumes(engine, kubeconfig, name)
        yield Cluster(KIND_CONTEXT + name, kubeconfig)
    except BaseException:
        keep = False
        raise
    finally:
        if keep:
            _record(name).write_text(KEPT)
        else:
            delete(engine, name)


def delete(engine: Engine, name: str) -> None:
    """Delete a cluster that a run created."""
    kubeconfig = _kubeconfig(name)
    command = ("delete", "cluster", "--name", name, "--kubeconfig", kubeconfig)
    engine.run(program("kind"), *command, doing=f"Deleting the cluster {name}")
    kubeconfig.unlink(missing_ok=True)
    _record(name).unlink(missing_ok=True)


def recorded() -> list[str]:
    """Return the names of the clusters that runs created and did not delete."""
    return sorted(path.name.removeprefix(RECORD) for path in cache_dir().glob(f"{RECORD}*"))


def listed(engine: Engine) -> list[str]:
    """Return the names of the kind clusters in an engine."""
    return engine.run(program("kind"), "get", "clusters", doing="Listing the kind clusters").split()


def _refuse_existing(engine: Engine, name: str) -> None:
    """Raise Unavailable if there is a cluster of this name that must not be deleted."""
    if name not in listed(engine):
        return
    if not _record(name).exists():
        raise Unavailable(
            f"There is a kind cluster {name} that no run of this cache folder created; if you do "
            f"not need it, delete it: kind delete cluster --name {name}"
        )
    if _record(name).read_text() == KEPT:
        raise Unavailable(
            f"The cluster {name} of an earlier run was kept. Remove it with `make e2e-clean`, or "
            f"run the tests on it: KUBECONFIG={_kubeconfig(name)} E2E_CLUSTER=existing "
            f"E2E_CONTEXT={KIND_CONTEXT}{name} make e2e"
        )


def _record(name: str) -> Path:
    """Return the file that exists while a cluster does; it contains KEPT if a run kept it."""
    return cache_dir() / f"{RECORD}{name}"


def _kubeconfig(name: str) -> Path:
    return cache_dir() / f"kubeconfig-{name}"


def existing(context: str | None) -> Cluster:
    """Return the cluster of the user's current context, if it is the named one.

    Its kubeconfig is a copy with this context alone, so the tests stay on this cluster when the
    user switches to another context.
    """
    if not context:
        raise Unavailable(
            "E2E_CLUSTER=existing needs E2E_CONTEXT=<name>, the kubectl context to run on."
        )
    kubectl = program("kubectl")
    asking = "Reading the current context with kubectl"
    current = run(kubectl, "config", "current-context", doing=asking)
    if current != context:
        raise Unavailable(
            f"The current context is {current}, not {context}; the tests create and delete "
            "objects, so they run only on the cluster of the current context: "
            f"kubectl config use-context {context}"
        )
    copying = "Copying the context from the kubeconfig"
    view = ("config", "view", "--minify", "--flatten", "--raw", "--context", context)
    kubeconfig = cache_dir() / "kubeconfig-existing"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(run(kubectl, *view, doing=copying) + "\n")
    return Cluster(context, kubeconfig)


def _prepare_volumes(engine: Engine, kubeconfig: Path, name: str) -> None:
    """Create volumes that pods can write to without being root, as on kind's own nodes.

    Folders that Kubernetes itself creates on the node belong to root.
    """
    volumes = {f"volume-{number}": f"/volumes/{number}" for number in range(VOLUMES)}
    make = ("docker", "exec", f"{name}-control-plane", "mkdir", "-p", "--mode=777")
    engine.run(*make, *volumes.values(), doing="Creating the folders of the volumes")
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
    run(*kubectl, "apply", "--filename", manifest, doing="Creating the volumes")


def _kind_config() -> dict[str, Any]:
    """Return kind's configuration: one node, whose API server writes AUDIT_LOG."""
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
    """Write the policy of the audit log: only the requests of the operator's account."""
    account = f"system:serviceaccount:{installation.NAMESPACE}:{RELEASE}"
    rules = [{"level": "Metadata", "users": [account]}, {"level": "None"}]
    file = cache_dir() / "audit-policy.json"
    file.write_text(json.dumps({**audit.POLICY, "rules": rules}, indent=2))
    return file


def named_images(cluster: Cluster, environ: Mapping[str, str] = os.environ) -> TestImages | None:
    """Return the images that the environment names, or None if they must be made and loaded."""
    given = {field: environ.get(name, "") for name, field in IMAGE_VARIABLES.items()}
    if all(given.values()):
        return TestImages(**given)
    if any(given.values()):
        missing = [name for name in IMAGE_VARIABLES if not environ.get(name)]
        raise Unavailable(
            f"Some images are named, but {', '.join(missing)} is not set; set all of them, or none."
        )
    if cluster.kind_name is None:
        raise Unavailable(
            f"{cluster.context} is not a kind cluster, so images cannot be loaded into it; push "
            f"the images to its registry and name them in {', '.join(IMAGE_VARIABLES)}."
        )
    return None


def made_images(engine: Engine) -> TestImages:
    """Make the images that the tests run."""
    docker = Docker(engine)
    return TestImages(
        project.operator(docker),
        base.redis(docker),
        project.node_workers(docker),
        project.python_workers(docker),
    )


def load(engine: Engine, cluster: str, images: Iterable[str]) -> None:
    """Copy images from the engine into a kind cluster."""
    command = (program("kind"), "load", "docker-image", "--name", cluster)
    engine.run(*command, *images, doing="Loading the images into the cluster")


def is_kept() -> bool:
    """Return whether the variable KEEP is set: keep the cluster and the objects of failed tests."""
    return os.environ.get("KEEP", "0") not in ("", "0")


def program(name: str) -> Path:
    """Return the path of kind or kubectl."""
    return binaries.find(name)[name]
