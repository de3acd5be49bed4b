"""The tools that build images: docker, or buildah, which needs no daemon."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from testbed import TESTBED
from testbed.cluster.engine import Engine
from testbed.support.commands import completed, run

# Marks the testbed's images in a store that others use, too.
LABEL = "dev.jobgroups.testbed"
LEFT_OUT = TESTBED / "node_image" / "left-out"


class Builder(Protocol):
    """A store of images, and the tool that adds to it."""

    name: str

    def run(self, *arguments: str | Path, doing: str) -> str:
        """Run the tool and return what it printed."""

    def has(self, image: str) -> bool:
        """Return whether the store has an image."""

    def is_made(self, image: str) -> bool:
        """Return whether an image of the store was made by `take`."""

    def pull(self, image: str) -> bool:
        """Pull an image from a registry; return whether that succeeded."""

    def take(self, root: Path, tag: str, settings: Sequence[str]) -> None:
        """Make an image from a folder that is the root of a whole system."""

    def build(self, context: Path, dockerfile: str, tag: str, **arguments: str) -> None:
        """Build an image without a network."""


class Docker:
    """An engine with a daemon."""

    name = "docker"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def run(self, *arguments: str | Path, doing: str) -> str:
        return self.engine.run("docker", *arguments, doing=doing)

    def has(self, image: str) -> bool:
        return self.engine.succeeds("docker", "image", "inspect", image)

    def is_made(self, image: str) -> bool:
        asked = ("image", "inspect", "--format={{.Config.Labels}}", image)
        return LABEL in self.run(*asked, doing=f"Reading the labels of {image}")

    def pull(self, image: str) -> bool:
        return self.engine.succeeds("docker", "pull", "--quiet", image)

    def take(self, root: Path, tag: str, settings: Sequence[str]) -> None:
        changes = [f"--change={setting}" for setting in (*settings, f"LABEL {LABEL}=")]
        # Docker also imports an incomplete archive, so the image is tagged afterwards.
        pipe = 'tar -C "$0" --exclude-from "$1" -c . | docker import "${@:2}" -'
        shell = sandboxed("bash", "-o", "pipefail", "-c", pipe, root, LEFT_OUT, *changes)
        image = self.engine.run(*shell, doing=f"Importing {tag}")
        self.run("tag", image, tag, doing=f"Naming {tag}")
        self._forget_older(tag)

    def build(self, context: Path, dockerfile: str, tag: str, **arguments: str) -> None:
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        options = ("--network=none", f"--label={LABEL}", f"--tag={tag}", *given)
        file = context / dockerfile
        self.run("build", *options, f"--file={file}", context, doing=f"Building {tag}")
        self._forget_older(tag)

    def _forget_older(self, tag: str) -> None:
        """Remove the images that this one replaces, and untagged ones that were never finished."""
        repository = tag.partition(":")[0]
        asked = ("images", "--format={{.Repository}}:{{.Tag}}", repository)
        names = self.run(*asked, doing="Listing images")
        if older := [name for name in names.splitlines() if name != tag]:
            self.engine.succeeds("docker", "rmi", *older)
        self.engine.succeeds("docker", "image", "prune", "--force", f"--filter=label={LABEL}")


class Buildah:
    """A store without a daemon."""

    name = "buildah"

    def run(self, *arguments: str | Path, doing: str) -> str:
        return run("buildah", *arguments, doing=doing)

    def has(self, image: str) -> bool:
        return completed(("buildah", "inspect", "--type=image", image), None).returncode == 0

    def is_made(self, image: str) -> bool:
        asked = ("inspect", "--type=image", "--format={{.OCIv1.Config.Labels}}", image)
        return LABEL in self.run(*asked, doing=f"Reading the labels of {image}")

    def pull(self, image: str) -> bool:
        return completed(("buildah", "pull", "--quiet", image), None).returncode == 0

    def take(self, root: Path, tag: str, settings: Sequence[str]) -> None:
        context = root.with_suffix(".context")
        context.mkdir()
        archive = context / "root.tar"
        command = ("tar", "-C", root, "--exclude-from", LEFT_OUT, "-cf", archive, ".")
        run(*command, doing=f"Packing {tag}")
        (context / "Dockerfile").write_text(
            "\n".join(["FROM scratch", "ADD root.tar /", f"LABEL {LABEL}=", *settings])
        )
        self.build(context, "Dockerfile", tag)

    def build(self, context: Path, dockerfile: str, tag: str, **arguments: str) -> None:
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        options = ("--network=none", "--layers", f"--tag={tag}", *given)
        file = context / dockerfile
        self.run("build", *options, f"--file={file}", context, doing=f"Building {tag}")


def sandboxed(*command: str | Path) -> list[str | Path]:
    """Return a command in namespaces of its own: its mounts and processes end with it."""
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *command]
