"""The project's own images, each as its Dockerfile says: the operator's, the example's workers'.

No build needs a network: what the lock files pin is fetched by hash beforehand, and is in the
build's context.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from testbed import images
from testbed.builders import Builder
from testbed.cache import cache_dir, locked
from testbed.commands import run
from testbed.examples import ORDERS
from testbed.images import PROJECT, fingerprint, scratch, wheels
from testbed.toolchain import npm, npm_registry

# What the operator's image is made of, beside the wheels.
PARTS = ("Dockerfile", "deploy/image", "operator", "locks/runtime.txt")


def operator(builder: Builder, base: str | None = None) -> str:
    """Return the operator's image."""
    base = base or images.python(builder)
    parts = [PROJECT / part for part in PARTS]

    def fill(context: Path) -> None:
        for part in PARTS:
            copy(PROJECT / part, context / part)
        copy(wheels(parts[-1]), context / "wheels")

    tag = f"jobgroup/operator:{fingerprint(*parts, base)}"
    return built(builder, tag, "Dockerfile", fill, BASE=base)


def python_workers(builder: Builder) -> str:
    """Return the image of the example's workers in Python."""
    base = images.python(builder)
    parts = [ORDERS / part for part in ("python.Dockerfile", "requirements.txt", "worker.py")]

    def fill(context: Path) -> None:
        for part in parts:
            copy(part, context / part.name)
        copy(wheels(parts[1]), context / "wheels")

    tag = f"jobgroup/workers-python:{fingerprint(*parts, base)}"
    return built(builder, tag, "python.Dockerfile", fill, BASE=base, PIP_NO_INDEX="1")


def node_workers(builder: Builder) -> str:
    """Return the image of the example's workers in Node."""
    base = images.nodejs(builder)
    names = ("package-lock.json", "node.Dockerfile", "package.json", "worker.mjs")
    parts = [ORDERS / part for part in names]

    def fill(context: Path) -> None:
        for part in parts:
            copy(part, context / part.name)
        copy(npm_cache(parts[0]), context / "npm-cache")

    tag = f"jobgroup/workers-node:{fingerprint(*parts, base)}"
    offline = {"NPM_CONFIG_OFFLINE": "true", "NPM_CONFIG_REGISTRY": npm_registry()}
    return built(builder, tag, "node.Dockerfile", fill, BASE=base, **offline)


def built(
    builder: Builder, tag: str, dockerfile: str, fill: Callable[[Path], None], **arguments: str
) -> str:
    """Return an image, built if it is not there yet."""
    with locked("images"), scratch() as context:
        if not builder.has(tag):
            fill(context)
            builder.build(context, dockerfile, tag, **arguments)
    return tag


def npm_cache(lock: Path) -> Path:
    """Return a folder from which npm can install what a lock file names."""
    folder = cache_dir() / "npm" / fingerprint(lock, lock.with_name("package.json"))
    if not folder.exists():
        partial, project = folder.with_suffix(".partial"), folder.with_suffix(".project")
        for stale in (partial, project):
            shutil.rmtree(stale, ignore_errors=True)
        project.mkdir(parents=True)
        for name in (lock.name, "package.json"):
            shutil.copy(lock.with_name(name), project)
        options = ("--omit=dev", "--ignore-scripts", "--prefix", project, "--cache", partial)
        run(*npm(), "ci", *options, doing=f"Downloading what {lock} names", env=dict(os.environ))
        shutil.rmtree(project)
        partial.rename(folder)
    return folder


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, but nothing that Python has compiled."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        shutil.copy(source, target)
    else:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
