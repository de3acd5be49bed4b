"""`make image`: builds the operator's image with docker or buildah.

IMAGE=<name:tag>          the name of the image; default: jobgroup-operator:<version>
BASE=<image>              the base image: Python 3.11 and pip on Debian
BUILDER=docker|buildah    the tool; default: the first of them that works
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from jobgroup import __version__
from testbed import ROOT
from testbed.cluster import engine
from testbed.cluster.engine import Engine
from testbed.images import project
from testbed.images.builders import Buildah, Builder, Docker
from testbed.support.errors import Unavailable

REFUSED, INTERRUPTED = 2, 130


@contextmanager
def chosen(wish: str) -> Iterator[Builder]:
    """Return the builder that was asked for, else one that works, else start an engine."""
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
        if not has_docker:
            _save(docker, _name())


def _name() -> str:
    return os.environ.get("IMAGE") or f"jobgroup-operator:{__version__}"


def _save(docker: Docker, name: str) -> None:
    """Write an image into a file, because the engine that was started to build it ends now."""
    archive = ROOT / "build" / f"{name.replace('/', '-').replace(':', '-')}.tar"
    archive.parent.mkdir(exist_ok=True)
    docker.run("save", "--output", archive, name, doing=f"Saving {name}")
    print(
        f"No container engine is running; a temporary one built the image into {archive}:\n"
        f"  docker load --input {archive}"
    )


def main() -> int:
    """Build the image, tag it, and print its size."""
    try:
        with chosen(os.environ.get("BUILDER", "")) as builder:
            image = project.operator(builder, os.environ.get("BASE") or None)
            builder.run("tag", image, _name(), doing=f"Naming {_name()}")
            asked = ("images", "--format={{.Size}}", _name())
            # buildah prints one line for each name of the image.
            size, *_ = builder.run(*asked, doing="Asking for the image's size").splitlines()
            print(f"{_name()}: {size}, built with {builder.name}", flush=True)
    except Unavailable as refusal:
        print(f"make image: {refusal}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("make image: interrupted; run it again to continue.", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
