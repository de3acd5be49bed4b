"""Resolve the dependencies and write the lock files: `make lock`.

Lock files pin every package by hash and name no host, so that they work with any mirror.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from testbed.build.toolchain import npm
from testbed.servers.stock import CLIENTS
from testbed.support.commands import run
from testbed.support.errors import Unavailable
from testbed.support.examples import ORDERS

# The constraints make the image contain the versions that were tested with the stock worker.
PYTHON_LOCKS = {
    "locks/dev.txt": ["pyproject.toml", "--extra", "operator", "--group", "dev"],
    "locks/runtime.txt": [
        *("pyproject.toml", "--extra", "operator", "--constraints", "locks/dev.txt")
    ],
    "locks/go.txt": ["--group", "pyproject.toml:go"],
    "locks/node.txt": ["--group", "pyproject.toml:node"],
    "locks/redis.txt": ["--group", "pyproject.toml:redis", "--no-deps"],
    "examples/order-fulfilment/requirements.txt": [
        *("--group", "pyproject.toml:worker", "--constraints", "locks/dev.txt")
    ],
}
NODE_LOCKS = (CLIENTS, ORDERS)


def lock_python() -> None:
    """Write the lock files of Python packages for every platform and every supported Python."""
    uv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--upgrade", "--universal"]
    uv += ["--generate-hashes", "--no-header", "--no-annotate", "--python-version", "3.11"]
    for name, source in PYTHON_LOCKS.items():
        run(*uv, *source, "--output-file", name, doing=f"Writing {name}")


def lock_node(project: Path) -> None:
    """Write a package-lock.json without the addresses that npm adds to it."""
    # If node_modules is installed, npm copies its entries, which have no hashes.
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(project / "package.json", folder)
        options = ("--package-lock-only", "--ignore-scripts", "--prefix", folder)
        run(*npm(), "install", *options, doing=f"Writing {project}/package-lock.json")
        lock = Path(folder) / "package-lock.json"
        strip_addresses(lock)
        shutil.copy(lock, project)


def strip_addresses(lock: Path) -> None:
    """Remove the fields of an npm lock file that name a host: download and funding addresses."""
    content: dict[str, Any] = json.loads(lock.read_text())
    for package in content["packages"].values():
        package.pop("resolved", None)
        package.pop("funding", None)
    lock.write_text(json.dumps(content, indent=2) + "\n")


def main() -> int:
    """Write all lock files, or print why that is not possible."""
    try:
        lock_python()
        for project in NODE_LOCKS:
            lock_node(project)
    except Unavailable as refusal:
        print(f"make lock: {refusal}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
