"""The cache folder, which outlives a checkout: built binaries, toolchains and images."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.support.errors import Unavailable


def cache_dir() -> Path:
    """Return the project's cache folder; create it if necessary."""
    chosen = os.environ.get("JOBGROUP_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = (Path(chosen) if chosen else Path(home) / "jobgroup-operator").absolute()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise Unavailable(
            f"The cache folder {folder} cannot be written to; "
            "set JOBGROUP_CACHE to a folder you may write to."
        )
    return folder


@contextmanager
def locked(name: str, task: str = "") -> Iterator[None]:
    """Hold a lock that the kernel releases when this process ends, even if it is killed.

    If another process holds it, print that this one waits for it to finish the task.
    """
    path = cache_dir() / f"{name}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait = f"to {task} (it holds {path})" if task else f"to release {path}"
            print(f"Waiting for another run {wait}.", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def locked_if_free(name: str) -> Iterator[bool]:
    """Hold a lock unless another process, or this one, holds it; yield whether it was free."""
    with (cache_dir() / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def require_space(path: Path, gigabytes: float) -> None:
    """Raise Unavailable if the disk has less free space than a step needs."""
    free = shutil.disk_usage(path).free / 1e9
    if free < gigabytes:
        raise Unavailable(
            f"{path} has {free:.1f} GB free and this step needs about {gigabytes:g} GB; "
            "free some space, or set JOBGROUP_CACHE to a folder on a larger disk."
        )
