"""Programs that run to their end; a failure is reported in one sentence."""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.build.cache import cache_dir
from testbed.servers.processes import leashed
from testbed.support.errors import Unavailable


def run(
    *command: str | Path, doing: str, env: Mapping[str, str] | None = None, advice: str = ""
) -> str:
    """Run a command and return what it printed; raise Unavailable with advice if it fails."""
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{doing} failed: there is no {command[0]} on PATH; install it.")
    done = completed(command, env)
    if done.returncode == 0:
        return done.stdout.strip()
    output = done.stdout + done.stderr
    if "no space left on device" in output.lower():
        raise Unavailable(
            f"{doing} failed because the disk is full; free some space, "
            "or set JOBGROUP_CACHE to a folder on a larger disk."
        )
    log = cache_dir() / "failed-command.log"
    log.write_text(f"$ {' '.join(map(str, command))}\n{output}")
    failure = f"{doing} failed: {reason(done)} (the whole output is in {log})"
    raise Unavailable(f"{failure}; {advice}" if advice else failure)


def completed(
    command: Sequence[str | Path], env: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; it is killed if this process ends before."""
    return subprocess.run(
        leashed([str(part) for part in command]),
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        # Ctrl-C reaches this process alone, which ends the command if necessary. Otherwise a second
        # Ctrl-C would end the commands that clean up.
        start_new_session=True,
    )


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line of output that most likely contains the reason of a failure."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    telling = [line for line in lines if re.search("error|fail|cannot", line, re.IGNORECASE)]
    return (telling or lines or [f"exit code {done.returncode}"])[-1].strip()


def install(program: str, package: str) -> None:
    """Install the Debian package of a program, if the program is missing."""
    if shutil.which(program):
        return
    if shutil.which("apt-get") is None:
        raise Unavailable(
            f"{program} is missing, and there is no apt-get; install {package} by hand."
        )
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # The update fails if any package source is out of reach, even one that is not needed.
    with contextlib.suppress(Unavailable):
        run("apt-get", "update", "-q", doing="Updating the package lists", env=env)
    # An earlier run may have been interrupted during an installation.
    run("dpkg", "--configure", "-a", doing="Finishing an earlier installation", env=env)
    command = ("apt-get", "install", "-y", "-q", "--no-install-recommends", package)
    advice = f"check that apt reaches its package sources, or install {package} by hand."
    run(*command, doing=f"Installing {package}", env=env, advice=advice)
