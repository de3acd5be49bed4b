"""Programs that are run to their end, and whose failure is one sentence."""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.cache import cache_dir
from testbed.errors import Unavailable
from testbed.processes import leashed


def run(
    *command: str | Path, doing: str, env: Mapping[str, str] | None = None, advice: str = ""
) -> str:
    """Run a command and return what it printed; if it fails, say so and what to do about it."""
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{doing} failed: there is no {command[0]} on the PATH.")
    done = completed(command, env)
    if done.returncode == 0:
        return done.stdout.strip()
    said = done.stdout + done.stderr
    if "no space left on device" in said.lower():
        raise Unavailable(
            f"{doing} failed because the disk is full; free some space, "
            "or set JOBGROUP_CACHE to a folder on a larger disk."
        )
    log = cache_dir() / "failed-command.log"
    log.write_text(f"$ {' '.join(map(str, command))}\n{said}")
    told = f"{doing} failed: {reason(done)} (all it printed is in {log})"
    raise Unavailable(f"{told}; {advice}" if advice else told)


def completed(
    command: Sequence[str | Path], env: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, which comes with ours at the latest."""
    return subprocess.run(
        leashed([str(part) for part in command]),
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        # Ctrl-C is for this process, which ends the command if it has to. Else an impatient second
        # one would end the very commands that clean up.
        start_new_session=True,
    )


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line in which a failed program most likely says why."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    telling = [line for line in lines if re.search("error|fail|cannot", line, re.IGNORECASE)]
    return (telling or lines or [f"exit code {done.returncode}"])[-1].strip()


def install(program: str, package: str) -> None:
    """Install the Debian package that brings a program, if the program is missing."""
    if shutil.which(program):
        return
    if shutil.which("apt-get") is None:
        raise Unavailable(
            f"There is no {program}, and no apt-get to install it with; install {package} by hand."
        )
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # A foreign package source out of reach fails the update, and matters only if we need it.
    with contextlib.suppress(Unavailable):
        run("apt-get", "update", "-q", doing="Updating the package lists", env=env)
    # An earlier run may have been interrupted just here.
    run("dpkg", "--configure", "-a", doing="Finishing an earlier installation", env=env)
    command = ("apt-get", "install", "-y", "-q", "--no-install-recommends", package)
    advice = f"check that apt reaches its package sources, or install {package} by hand."
    run(*command, doing=f"Installing {package}", env=env, advice=advice)
