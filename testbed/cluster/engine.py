"""A container engine: the machine's own Docker, else a private dockerd that ends with the run.

The private dockerd stores everything below the cache folder and does not change the host's network:
it has no default bridge, writes no packet filter rule and enables no forwarding. One kind node
needs none of these, because Docker's own proxy forwards its published ports.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.build.cache import cache_dir
from testbed.servers.processes import leashed
from testbed.support.commands import completed, install, reason, run
from testbed.support.errors import Unavailable

START_SECONDS = 60
# dockerd kills a container that has not ended after ten seconds.
STOP_SECONDS = 40
SOCKET_PATH_BYTES = 107
CAP_SYS_RESOURCE = 24

# A privileged container requests every capability, and runc fails if the machine itself lacks one.
# The wrapper removes the capability from the configuration that runc gets.
RUNC_WITHOUT_SYS_RESOURCE = """\
#!/bin/sh
option=
for argument in "$@"; do
  case $option in
    --bundle|-b) asked=$argument/config.json ;;
    --process|-p) asked=$argument ;;
    *) asked= ;;
  esac
  if [ -f "$asked" ]; then
    sed -i -e 's/"CAP_SYS_RESOURCE",//g' -e 's/,"CAP_SYS_RESOURCE"//g' "$asked"
  fi
  option=$argument
done
exec runc "$@"
"""


@dataclass(frozen=True)
class Engine:
    """A container engine: the environment with which docker and kind reach it."""

    env: Mapping[str, str]

    def run(self, *command: str | Path, doing: str) -> str:
        return run(*command, doing=doing, env=self.env)

    def succeeds(self, *command: str | Path) -> bool:
        return completed(command, self.env).returncode == 0

    def absence(self) -> str | None:
        """Return why the engine cannot be reached, or None if it can."""
        if shutil.which("docker") is None:
            return "there is no docker on PATH"
        asked = completed(("docker", "info"), self.env)
        return None if asked.returncode == 0 else reason(asked)


@contextmanager
def started(keep: bool = False) -> Iterator[Engine]:
    """Return the machine's engine, or start a private one and stop it in the end.

    `keep` leaves the private engine running for a cluster that is kept. Later runs use it and leave
    it running; `stop_kept` stops it.
    """
    own = Engine(os.environ)
    if (absence := own.absence()) is None:
        yield own
        return
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Unavailable(
            "No container engine can be reached, and only root on Linux can start one: start "
            f"Docker, or run as root (docker info: {absence})."
        )
    install("dockerd", "docker.io")
    # Newer Debians have the client in a package of its own.
    install("docker", "docker-cli")
    # With systemd, the package has just started its service.
    if own.absence() is None:
        yield own
        return
    with _private_daemon(cache_dir() / "engine", keep) as private:
        yield private


def running() -> Engine:
    """Return the engine that runs: the machine's, or a private one that was kept."""
    for engine in (Engine(os.environ), _private_engine(cache_dir() / "engine")):
        if (absence := engine.absence()) is None:
            return engine
    raise Unavailable(f"No container engine is running: start Docker ({absence}).")


def stop_kept() -> None:
    """Stop the private engine that an earlier run kept, if there is one."""
    folder = cache_dir() / "engine"
    engine = _private_engine(folder)
    if folder.exists() and engine.absence() is None:
        _empty(engine)
        _stop(folder)


@contextmanager
def _private_daemon(folder: Path, keep: bool) -> Iterator[Engine]:
    folder.mkdir(exist_ok=True)
    engine = _private_engine(folder)
    if engine.absence() is None:
        yield engine  # an earlier run kept it
        return
    _stop(folder)
    daemon = _start(folder, engine, leash=not keep)
    try:
        _empty(engine)
        yield engine
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            _empty(engine)
            _stop(folder)
            daemon.wait()


def _empty(engine: Engine) -> None:
    """Remove every container, and every network with its bridge on the host.

    This is necessary after a crash: the rest of an old node has the address of the new one.
    """
    listed = completed(("docker", "ps", "--all", "--quiet"), engine.env)
    if containers := listed.stdout.split():
        engine.succeeds("docker", "rm", "--force", "--volumes", *containers)
    engine.succeeds("docker", "network", "prune", "--force")


def _private_engine(folder: Path) -> Engine:
    others = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
    }
    return Engine({**others, "DOCKER_HOST": f"unix://{folder / 'docker.sock'}"})


def _start(folder: Path, engine: Engine, leash: bool) -> subprocess.Popen[bytes]:
    if len(os.fsencode(folder / "exec/containerd/containerd.sock.ttrpc")) > SOCKET_PATH_BYTES:
        raise Unavailable(
            f"The path {folder} is too long for sockets; set JOBGROUP_CACHE to a shorter path."
        )
    config = folder / "daemon.json"
    config.write_text(json.dumps(_configuration(folder), indent=2))
    command = ["dockerd", "--config-file", str(config)]
    log = folder / "dockerd.log"
    with log.open("wb") as output:
        # On TERM, dockerd stops its containers when this process is killed. In a session of its
        # own, it does not get Ctrl-C before the cluster in it is deleted.
        daemon = subprocess.Popen(
            leashed(command, "TERM") if leash else command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while engine.absence() is not None:
            if daemon.poll() is not None or time.monotonic() > deadline:
                words = log.read_text(errors="replace").strip().splitlines() or [
                    "it printed nothing"
                ]
                raise Unavailable(f"dockerd did not start: {words[-1]} (its log is {log})")
            time.sleep(0.1)
    except BaseException:
        daemon.terminate()
        daemon.wait()
        raise
    return daemon


def _configuration(folder: Path) -> dict[str, object]:
    """Return dockerd's settings: all files below one folder, no change of the host's network."""
    settings: dict[str, object] = {
        "data-root": str(folder / "data"),
        "exec-root": str(folder / "exec"),
        "pidfile": str(folder / "dockerd.pid"),
        "hosts": [f"unix://{folder / 'docker.sock'}"],
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "ip-forward": False,
        "ip-masq": False,
        # Containers cannot reach the machine's name servers, so lookups must fail at once.
        "dns": ["127.0.0.1"],
        "dns-search": ["."],
        # The default is negative, which needs CAP_SYS_RESOURCE.
        "oom-score-adjust": 0,
    }
    if not _may(CAP_SYS_RESOURCE):
        wrapper = folder / "runc-without-sys-resource"
        wrapper.write_text(RUNC_WITHOUT_SYS_RESOURCE)
        wrapper.chmod(0o755)
        settings["runtimes"] = {wrapper.name: {"path": str(wrapper)}}
        settings["default-runtime"] = wrapper.name
    return settings


def _may(capability: int) -> bool:
    """Return whether this process has a capability."""
    status = Path("/proc/self/status").read_text()
    held = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(held, 16) >> capability & 1)


def _stop(folder: Path) -> None:
    """Stop the private dockerd, of this run or an earlier one, in whatever state it is."""
    pid_file = folder / "dockerd.pid"
    deadline = time.monotonic() + STOP_SECONDS
    sent = None
    # dockerd removes the file before it ends, so the file is read only once.
    pid = pid_file.read_text().strip() if pid_file.exists() else ""
    while pid.isdigit() and _is_daemon(int(pid), folder):
        wanted = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        if wanted != sent:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), wanted)
            sent = wanted
        time.sleep(0.1)
    # dockerd does not start if any process with this id runs.
    pid_file.unlink(missing_ok=True)
    # A killed dockerd leaves its folder mounted on itself.
    completed(("umount", "--quiet", folder / "data"), os.environ)


def _is_daemon(pid: int, folder: Path) -> bool:
    """Return whether a process is the private dockerd, and not another one with its id."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return os.fsencode(folder / "daemon.json") in command
