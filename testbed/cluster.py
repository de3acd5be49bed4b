"""A Kubernetes cluster for the end-to-end tests: one kind node of our own, or one that exists."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed import binaries, images
from testbed.cache import cache_dir
from testbed.commands import run
from testbed.engine import Engine
from testbed.errors import Unavailable

NAME = "jobgroup-e2e"
KIND_CONTEXT = "kind-"
READY = "3m"


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

    __test__ = False  # not a test class, whatever its name


@contextmanager
def created(engine: Engine, node_image: str, keep: bool = False) -> Iterator[Cluster]:
    """Create the kind cluster in place of any leftover of an earlier run, and delete it."""
    kubeconfig = cache_dir() / "kubeconfig"
    named = ("--name", NAME, "--kubeconfig", kubeconfig)

    def delete() -> None:
        doing = f"Deleting the cluster {NAME}"
        engine.run(program("kind"), "delete", "cluster", *named, doing=doing)
        kubeconfig.unlink(missing_ok=True)

    delete()
    try:
        doing = f"Creating the cluster {NAME}"
        options = ("--image", node_image, "--wait", READY)
        engine.run(program("kind"), "create", "cluster", *named, *options, doing=doing)
        # kind waits for the node; pods find each other by name only when this is there, too.
        kubectl = (program("kubectl"), "--kubeconfig", kubeconfig, "--namespace=kube-system")
        dns = ("rollout", "status", "deployment/coredns", f"--timeout={READY}")
        run(*kubectl, *dns, doing="Waiting for the cluster's DNS")
        yield Cluster(KIND_CONTEXT + NAME, kubeconfig)
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


def named_images(cluster: Cluster, environ: Mapping[str, str] = os.environ) -> TestImages | None:
    """Return the images that E2E_IMAGE and E2E_REDIS_IMAGE name; None means: make and load them."""
    given = [environ.get(name) for name in ("E2E_IMAGE", "E2E_REDIS_IMAGE")]
    match given:
        case [str(operator), str(redis)] if operator and redis:
            return TestImages(operator, redis)
        case _ if any(given):
            raise Unavailable("E2E_IMAGE and E2E_REDIS_IMAGE go together; only one is set.")
        case _ if cluster.kind_name is None:
            raise Unavailable(
                f"{cluster.context} is not a kind cluster, so nothing can be loaded into it; push "
                "the images where it finds them and name them in E2E_IMAGE and E2E_REDIS_IMAGE."
            )
    return None


def made_images(engine: Engine) -> TestImages:
    """Make the images the tests run, in the engine."""
    return TestImages(images.operator(engine), images.redis(engine))


def load(engine: Engine, cluster: Cluster, made: TestImages) -> None:
    """Copy images from the engine into a kind cluster."""
    command = (program("kind"), "load", "docker-image", "--name", cluster.kind_name or "")
    engine.run(*command, made.operator, made.redis, doing="Loading the images into the cluster")


def program(name: str) -> Path:
    return binaries.find(name)[name]
