"""Programs built from Go modules that a go.mod of the testbed pins, kept in the cache."""

import hashlib
import math
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from testbed.build.cache import cache_dir, locked, locked_if_free, require_space
from testbed.build.toolchain import go, go_env
from testbed.servers.processes import leashed
from testbed.support.errors import Unavailable

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
        """Return the folder of the built programs; its name is a digest of their sources."""
        sources = [self.folder / "go.mod", self.folder / "go.sum"]
        digest = hashlib.sha256(self.linker_flags.encode())
        for source in [*sources, *sorted(self.folder.glob("*/main.go"))]:
            digest.update(source.read_bytes())
        machine = f"{sys.platform}-{platform.machine()}"
        return cache_dir() / "bin" / f"{self.version}-{machine}-{digest.hexdigest()[:12]}"

    def ensure(self, *names: str) -> Path:
        """Build those of the programs that are missing, and return the folder that holds them."""
        folder = self.built
        # Without the lock, so that a warm start does not wait for another process's build.
        if all((folder / name).exists() for name in names):
            return folder
        # One lock for each program: a process does not wait for programs that it does not need.
        with ExitStack() as locks:
            for name in sorted(names):
                if not (folder / name).exists():
                    locks.enter_context(locked(_lock_of(name), f"build {name}"))
            missing = [name for name in names if not (folder / name).exists()]
            if missing:
                self._build(missing, folder)
        return folder

    def _build(self, names: Sequence[str], folder: Path) -> None:
        """Build in a temporary folder, then move the programs: none is ever incomplete."""
        require_space(cache_dir(), BUILD_GIGABYTES)
        packages = {name: self.packages[name] for name in names}
        print(
            f"Building {', '.join(names)} from Go modules: about {self.minutes} minutes the first"
            " time on two cores, seconds when Go's cache is warm. After Ctrl-C the next run"
            " continues from there.",
            flush=True,
        )
        started = time.monotonic()
        task = f"resolve the modules of {', '.join(names)}"
        total = len(self.go(["list", "-deps", *packages.values()], task).splitlines())
        # The lock on the first program protects the folder; others may be built at the same time.
        for stale in folder.glob(".partial-*"):
            with locked_if_free(_lock_of(stale.name.removeprefix(".partial-"))) as is_free:
                if is_free:
                    shutil.rmtree(stale, ignore_errors=True)
        partial = folder / f".partial-{names[0]}"
        shutil.rmtree(partial, ignore_errors=True)
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
        """Run a go command in the module's folder, and return what it prints."""
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


def _lock_of(program: str) -> str:
    return f"build-{program}"


def _output_name(package: str) -> str:
    """Return the name that `go build` gives a binary: the last path element that is no version."""
    elements = package.split("/")
    return elements[-2] if elements[-1] == "v3" else elements[-1]


def _go_with_progress(folder: Path, arguments: Sequence[str], total: int, started: float) -> None:
    """Run a `go build -v`, which prints each package that it compiles, and count them."""
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
            # SIGINT makes go remove its work folder; SIGTERM does not.
            build.send_signal(signal.SIGINT)
            raise
    if build.returncode != 0:
        raise _explained("build the binaries", "".join(said[-20:]))


def progress(done: int, total: int, seconds: float) -> str:
    """Return how far a build is, and how long the rest takes at this speed."""
    left = math.ceil(seconds / done * (total - done) / 60)
    return f"  {done} of at most {total} packages in {seconds:.0f} s, at most {left} min more"


def _explained(task: str, said: str) -> Unavailable:
    """Return the error for a failed go command: the likely reason, and what Go printed."""
    words = " ".join(said.split())[-400:]
    if "no space left on device" in said:
        reason = "the disk is full; free about 6 GB, or point JOBGROUP_CACHE and GOCACHE elsewhere"
    elif any(sign in said for sign in ("GOPROXY", "dial tcp", "no such host", "proxyconnect")):
        reason = "the Go module proxy is out of reach; check the network and GOPROXY"
    else:
        reason = "the go command failed"
    return Unavailable(f"Could not {task}: {reason}. Go printed: {words}")
