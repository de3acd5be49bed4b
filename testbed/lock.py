"""Resolve the dependencies anew: `make lock`.

The lock files pin everything by hash and name no host to download from, so they serve behind any
mirror.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed.stock import CLIENTS
from testbed.toolchain import ROOT, npm

# What ships is held to the versions that were tested, which the stock worker narrows.
PYTHON_LOCKS = {
    "dev": ["pyproject.toml", "--group", "dev"],
    "runtime": ["pyproject.toml", "--constraints", "locks/dev.txt"],
    "go": ["--group", "pyproject.toml:go"],
    "node": ["--group", "pyproject.toml:node"],
    "redis": ["--group", "pyproject.toml:redis", "--no-deps"],
}


def lock_python() -> None:
    """Write locks/*.txt for every platform and every supported Python."""
    uv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--upgrade", "--universal"]
    uv += ["--generate-hashes", "--no-header", "--no-annotate", "--python-version", "3.11"]
    for name, source in PYTHON_LOCKS.items():
        subprocess.run([*uv, *source, "--output-file", f"locks/{name}.txt"], cwd=ROOT, check=True)


def lock_node() -> None:
    """Write package-lock.json, without the addresses npm would note in it."""
    lock = CLIENTS / "package-lock.json"
    lock.unlink(missing_ok=True)
    subprocess.run(
        [*npm(), "install", "--package-lock-only", "--ignore-scripts"],
        cwd=CLIENTS,
        check=True,
    )
    strip_addresses(lock)


def strip_addresses(lock: Path) -> None:
    """Leave out of an npm lock whatever names a host: downloads and requests for money."""
    content: dict[str, Any] = json.loads(lock.read_text())
    for package in content["packages"].values():
        package.pop("resolved", None)
        package.pop("funding", None)
    lock.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    lock_python()
    lock_node()
