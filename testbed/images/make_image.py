"""`make image`: the operator's image, built with docker or with buildah.

IMAGE=<name:tag>          what to call it; jobgroup-operator:<version> if not given
BASE=<image>              what to build it on: Python 3.11 and pip on a Debian
BUILDER=docker|buildah    what to build it with; the first of them that works if not given
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from jobgroup import __version__
from testbed import engine, own_images
from testbed.builders import Buildah, Builder, Docker
from testbed.engine import Engine
from testbed.errors import Unavailable
from testbed.images import PROJECT

REFUSED, INTERRUPTED = 2, 130


@contextmanager
def chosen(wish: str) -> Iterator[Builder]:
    """Give what is asked for, or what there is; where there is nothing, start an engine for it."""
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
    """Write an image into a file, for the engine that was started to build it ends now."""
    archive = PROJECT / "build" / f"{name.replace('/', '-').replace(':', '-')}.tar"
    archive.parent.mkdir(exist_ok=True)
    docker.run("save", "--output", archive, name, doing=f"Saving {name}")
    print(
        f"No container engine ran here, so one was started for it; the image is in {archive}:\n"
        f"  docker load --input {archive}"
    )


def main() -> int:
    """Build the image, give it its name and say how large it is."""
    try:
        with chosen(os.environ.get("BUILDER", "")) as builder:
            image = own_images.operator(builder, os.environ.get("BASE") or None)
            builder.run("tag", image, _name(), doing=f"Naming {_name()}")
            asked = ("images", "--format={{.Size}}", _name())
            # buildah names it once for each of its names.
            size, *_ = builder.run(*asked, doing="Asking for the image's size").splitlines()
            print(f"{_name()}: {size}, built with {builder.name}", flush=True)
    except Unavailable as refusal:
        print(f"make image: {refusal}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("make image: interrupted; run it again and it goes on from here.", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
