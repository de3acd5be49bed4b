"""What builds images: docker, or buildah, which needs no daemon."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from testbed.commands import completed, run
from testbed.engine import Engine

# Marks what is ours in a store that others use too.
LABEL = "dev.jobgroups.testbed"
LEFT_OUT = Path(__file__).resolve().parent / "node_image" / "left-out"


class Builder(Protocol):
    """A store of images, and the tool that adds to it."""

    name: str

    def run(self, *arguments: str | Path, doing: str) -> str:
        """Run the tool and return what it printed."""

    def has(self, image: str) -> bool:
        """Say whether an image is there."""

    def pull(self, image: str) -> bool:
        """Try to get an image from a registry, and say whether that worked."""

    def take(self, root: Path, tag: str, settings: Sequence[str]) -> None:
        """Make an image of a folder that is the root of a whole system."""

    def build(self, context: Path, dockerfile: str, tag: str, **arguments: str) -> None:
        """Build an image without any network."""


class Docker:
    """An engine with a daemon."""

    name = "docker"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def run(self, *arguments: str | Path, doing: str) -> str:
        return self.engine.run("docker", *arguments, doing=doing)

    def has(self, image: str) -> bool:
        return self.engine.succeeds("docker", "image", "inspect", image)

    def pull(self, image: str) -> bool:
        return self.engine.succeeds("docker", "pull", "--quiet", image)

    def take(self, root: Path, tag: str, settings: Sequence[str]) -> None:
        changes = [f"--change={setting}" for setting in (*settings, f"LABEL {LABEL}=")]
        # Docker takes the half of an archive for a whole one, so the name comes afterwards.
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
        """Remove the images this one replaces, and nameless ones that never were finished."""
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

    def pull(self, image: str) -> bool:
        return completed(("buildah", "pull", "--quiet", image), None).returncode == 0

    def take(self, root: Path, tag: str, settings: Sequence[str]) -> None:
        context = root.with_suffix(".context")
        context.mkdir()
        archive = context / "root.tar"
        command = ("tar", "-C", root, "--exclude-from", LEFT_OUT, "-cf", archive, ".")
        run(*command, doing=f"Packing {tag}")
        (context / "Dockerfile").write_text(
            "\n".join(["FROM scratch", "ADD root.tar /", *settings])
        )
        self.build(context, "Dockerfile", tag)

    def build(self, context: Path, dockerfile: str, tag: str, **arguments: str) -> None:
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        options = ("--network=none", "--layers", f"--tag={tag}", *given)
        file = context / dockerfile
        self.run("build", *options, f"--file={file}", context, doing=f"Building {tag}")


def sandboxed(*command: str | Path) -> list[str | Path]:
    """Give a command namespaces that take its mounts and its processes with them when it ends."""
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *command]
