"""Programs built from Go modules that a go.mod of ours pins, kept in the project's cache."""

import hashlib
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.cache import cache_dir, locked, require_space
from testbed.errors import Unavailable
from testbed.processes import leashed
from testbed.toolchain import go, go_env

BUILD_GIGABYTES = 6


@dataclass(frozen=True)
class Module:
    """A folder with a go.mod, the programs to build from it, and how long that takes."""

    folder: Path
    version: str
    packages: Mapping[str, str]
    linker_flags: str
    minutes: int

    @property
    def built(self) -> Path:
        """Name the folder of what was built after all that decides what is in it."""
        sources = [self.folder / "go.mod", self.folder / "go.sum"]
        digest = hashlib.sha256(self.linker_flags.encode())
        for source in [*sources, *sorted(self.folder.glob("*/main.go"))]:
            digest.update(source.read_bytes())
        machine = f"{sys.platform}-{platform.machine()}"
        return cache_dir() / "bin" / f"{self.version}-{machine}-{digest.hexdigest()[:12]}"

    def ensure(self, *names: str) -> Path:
        """Build what is missing of these programs and return the folder that holds them."""
        folder = self.built
        with locked("build"):
            missing = [name for name in names if not (folder / name).exists()]
            if missing:
                self._build(missing, folder)
        return folder

    def _build(self, names: Sequence[str], folder: Path) -> None:
        """Build into a folder of its own and move whole programs over: none is ever half there."""
        require_space(cache_dir(), BUILD_GIGABYTES)
        packages = {name: self.packages[name] for name in names}
        print(
            f"Building {', '.join(names)} from Go modules: about {self.minutes} minutes the first"
            " time on two cores, seconds when Go's cache is warm. Ctrl-C is safe, the next run goes"
            " on from there.",
            flush=True,
        )
        started = time.monotonic()
        task = f"resolve the modules of {', '.join(names)}"
        total = len(self.go(["list", "-deps", *packages.values()], task).splitlines())
        partial = folder / f".partial-{os.getpid()}"
        for stale in folder.glob(".partial-*"):
            shutil.rmtree(stale, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            flags = ["-v", "-mod=readonly", "-trimpath", "-ldflags", self.linker_flags]
            build = ["build", *flags, "-o", f"{partial}/", *packages.values()]
            _go_with_progress(self.folder, build, total, started)
            for name, package in packages.items():
                (partial / _output_name(package)).rename(folder / name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        print(f"Built {', '.join(names)} in {time.monotonic() - started:.0f} s.", flush=True)

    def go(self, arguments: Sequence[str], task: str) -> str:
        """Run a go command in the module's folder and return what it prints."""
        done = subprocess.run(
            leashed([str(go()), *arguments]),
            cwd=self.folder,
            env=go_env(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise _explained(task, done.stderr)
        return done.stdout


def _output_name(package: str) -> str:
    """Say how `go build` calls a package's binary: its last path element that is no version."""
    elements = package.split("/")
    return elements[-2] if elements[-1] == "v3" else elements[-1]


def _go_with_progress(folder: Path, arguments: Sequence[str], total: int, started: float) -> None:
    """Run a `go build -v`, which names each package as it compiles it, and count them."""
    said: list[str] = []
    last = started
    with subprocess.Popen(
        leashed([str(go()), *arguments]),
        cwd=folder,
        env=go_env(),
        stderr=subprocess.PIPE,
        text=True,
    ) as build:
        try:
            for line in build.stderr or ():
                said.append(line)
                if (now := time.monotonic()) - last >= 15:
                    last = now
                    print(progress(len(said), total, now - started), flush=True)
        except BaseException:
            # An interrupted go removes its work folder, a terminated one leaves it.
            build.send_signal(signal.SIGINT)
            raise
    if build.returncode != 0:
        raise _explained("build the binaries", "".join(said[-20:]))


def progress(done: int, total: int, seconds: float) -> str:
    """Say how far a build is, and how long it takes if it goes on like this."""
    left = math.ceil(seconds / done * (total - done) / 60)
    return f"  {done} of at most {total} packages in {seconds:.0f} s, at most {left} min more"


def _explained(task: str, said: str) -> Unavailable:
    """Turn Go's words into the sentence a person needs."""
    words = " ".join(said.split())[-400:]
    if "no space left on device" in said:
        reason = "the disk is full; free about 6 GB, or point JOBGROUP_CACHE and GOCACHE elsewhere"
    elif any(sign in said for sign in ("GOPROXY", "dial tcp", "no such host", "proxyconnect")):
        reason = "the Go module proxy is out of reach; check the network and GOPROXY"
    else:
        reason = "Go refused"
    return Unavailable(f"Could not {task}: {reason}. Go said: {words}")
