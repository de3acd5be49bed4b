"""`make image`, `make images`, `make push` and `make load`, with docker or buildah.

image     the operator's image
images    every image: also Redis and the workers of the example
push      the same, pushed to REGISTRY
load      the same, loaded into a kind cluster

IMAGE=<name:tag>          the name of the operator's image; default: jobgroup-operator:<version>
REGISTRY=<host>           is put in front of all other names
CLUSTER=<name>            the kind cluster; default: that of the current context of kubectl
BASE=<image>              the base image of the operator's: Python 3.11 and pip on Debian
BUILDER=docker|buildah    the tool; default: the first of them that works
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from jobgroup import __version__
from testbed import ROOT
from testbed.cluster import engine, kind
from testbed.cluster.engine import Engine
from testbed.images import base, project
from testbed.images.builders import Buildah, Builder, Docker
from testbed.support.chart import defaults
from testbed.support.commands import run
from testbed.support.errors import Unavailable

REFUSED, INTERRUPTED = 2, 130
IMAGE, IMAGES, PUSH, LOAD = "image", "images", "push", "load"

# How to build an image, by the name that it gets.
Recipe = Callable[[Builder], str]
Recipes = Mapping[str, Recipe]


def recipes(target: str, environ: Mapping[str, str] = os.environ) -> Recipes:
    """Return what a target builds; the chart and the example use these names."""
    operator: Recipe = partial(project.operator, base=environ.get("BASE") or None)
    if target == IMAGE:
        return {environ.get("IMAGE") or f"jobgroup-operator:{__version__}": operator}
    every: Recipes = {
        f"jobgroup-operator:{__version__}": operator,
        str(defaults()["redis"]["bundled"]["image"]): base.redis,
        "order-workers:node": project.node_workers,
        "order-workers:python": project.python_workers,
    }
    registry = environ.get("REGISTRY", "").rstrip("/")
    if target == PUSH and not registry:
        raise Unavailable("REGISTRY is not set; name yours: make push REGISTRY=registry.shop")
    return {f"{registry}/{name}": recipe for name, recipe in every.items()} if registry else every


@contextmanager
def chosen(wish: str, saved: Sequence[str] = ()) -> Iterator[Builder]:
    """Return the builder that was asked for, else one that works, else start an engine.

    An engine that was started here saves the images `saved` before it ends.
    """
    if wish not in ("", "docker", "buildah"):
        raise Unavailable(f"BUILDER is {wish!r}; it can be docker or buildah.")
    if wish == "buildah" and shutil.which("buildah") is None:
        raise Unavailable("There is no buildah on the PATH; install it, or use docker.")
    has_docker = Engine(os.environ).absence() is None
    if wish == "buildah" or (not wish and not has_docker and shutil.which("buildah")):
        yield Buildah()
        return
    with engine.started() as found:
        docker = Docker(found)
        yield docker
        if saved and not has_docker:
            _save(docker, saved)


def _save(docker: Docker, names: Sequence[str]) -> None:
    """Write images into a file, because the engine that was started to build them ends now."""
    file = names[0].replace("/", "-").replace(":", "-") if len(names) == 1 else "images"
    archive = ROOT / "build" / f"{file}.tar"
    archive.parent.mkdir(exist_ok=True)
    docker.run("save", "--output", archive, *names, doing=f"Saving {', '.join(names)}")
    print(
        f"No container engine is running; a temporary one built {', '.join(names)} into {archive}:"
        f"\n  docker load --input {archive}"
    )


def build(builder: Builder, wanted: Recipes) -> None:
    """Build images, and name them."""
    for name, recipe in wanted.items():
        image = recipe(builder)
        if image != name:
            builder.run("tag", image, name, doing=f"Naming {name}")
        asked = ("images", "--format={{.Size}}", name)
        # buildah prints one line for each name of the image.
        size, *_ = builder.run(*asked, doing="Asking for the image's size").splitlines()
        print(f"{name}: {size}, built with {builder.name}", flush=True)


def load(wanted: Recipes) -> None:
    """Build images, and load them into a kind cluster."""
    docker, cluster = engine.running(), chosen_cluster()
    if cluster not in kind.listed(docker):
        raise Unavailable(
            f"There is no kind cluster {cluster}; create it: kind create cluster --name {cluster}"
        )
    build(Docker(docker), wanted)
    kind.load(docker, cluster, wanted)
    print(f"Loaded into the kind cluster {cluster}.", flush=True)


def chosen_cluster() -> str:
    """Return the name of the kind cluster to load images into."""
    if named := os.environ.get("CLUSTER"):
        return named
    asked = (kind.program("kubectl"), "config", "current-context")
    context = run(*asked, doing="Reading the current context with kubectl")
    if not context.startswith(kind.KIND_CONTEXT):
        raise Unavailable(
            f"The current context is {context}, which is not a kind cluster; switch to one with "
            "`kubectl config use-context`, or name it: make load CLUSTER=<name>"
        )
    return context.removeprefix(kind.KIND_CONTEXT)


def main(target: str = IMAGE) -> int:
    """Build what a target builds, and print the name and the size of each image."""
    try:
        wanted = recipes(target)
        if target == LOAD:
            load(wanted)
            return 0
        with chosen(os.environ.get("BUILDER", ""), () if target == PUSH else [*wanted]) as builder:
            build(builder, wanted)
            for name in wanted if target == PUSH else ():
                builder.run("push", name, doing=f"Pushing {name}")
                print(f"Pushed {name}.", flush=True)
    except Unavailable as refusal:
        print(f"make {target}: {refusal}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print(f"make {target}: interrupted; run it again to continue.", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
