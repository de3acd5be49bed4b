"""The project's images, built from their Dockerfiles: the operator and the example's workers.

No build needs a network: the packages that the lock files pin are downloaded before, and are part
of the build's context.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from testbed import ROOT
from testbed.build.cache import cache_dir, locked
from testbed.build.toolchain import npm, npm_registry
from testbed.images.base import fingerprint, nodejs, python, scratch, wheels
from testbed.images.builders import Builder
from testbed.support.commands import run
from testbed.support.examples import ORDERS

# What the operator's image is made from, beside the wheels.
PARTS = ("Dockerfile", "deploy/image", "operator", "locks/runtime.txt")


def operator(builder: Builder, base: str | None = None) -> str:
    """Return the operator's image."""
    base = base or python(builder)
    parts = [ROOT / part for part in PARTS]

    def fill(context: Path) -> None:
        for part in PARTS:
            copy(ROOT / part, context / part)
        copy(wheels(parts[-1]), context / "wheels")

    tag = f"jobgroup/operator:{fingerprint(*parts, base)}"
    return built(builder, tag, "Dockerfile", fill, BASE=base)


def python_workers(builder: Builder) -> str:
    """Return the image of the example's workers in Python."""
    base = python(builder)
    parts = [ORDERS / part for part in ("python.Dockerfile", "requirements.txt", "worker.py")]

    def fill(context: Path) -> None:
        for part in parts:
            copy(part, context / part.name)
        copy(wheels(parts[1]), context / "wheels")

    tag = f"jobgroup/workers-python:{fingerprint(*parts, base)}"
    return built(builder, tag, "python.Dockerfile", fill, BASE=base, PIP_NO_INDEX="1")


def node_workers(builder: Builder) -> str:
    """Return the image of the example's workers in Node."""
    base = nodejs(builder)
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
    """Return an image; build it if the store does not have it."""
    with locked("images"), scratch() as context:
        if not builder.has(tag):
            fill(context)
            builder.build(context, dockerfile, tag, **arguments)
    return tag


def npm_cache(lock: Path) -> Path:
    """Return a folder from which npm can install the packages of a lock file."""
    folder = cache_dir() / "npm" / fingerprint(lock, lock.with_name("package.json"))
    if not folder.exists():
        partial, project = folder.with_suffix(".partial"), folder.with_suffix(".project")
        for stale in (partial, project):
            shutil.rmtree(stale, ignore_errors=True)
        project.mkdir(parents=True)
        for name in (lock.name, "package.json"):
            shutil.copy(lock.with_name(name), project)
        options = ("--omit=dev", "--ignore-scripts", "--prefix", project, "--cache", partial)
        run(
            *npm(),
            "ci",
            *options,
            doing=f"Downloading the packages of {lock}",
            env=dict(os.environ),
        )
        shutil.rmtree(project)
        partial.rename(folder)
    return folder


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, without byte code."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        shutil.copy(source, target)
    else:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
