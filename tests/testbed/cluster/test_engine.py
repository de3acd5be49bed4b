"""A container engine is found or started; if there is none, the error says what to do.

These tests need no engine: scripts replace docker, dockerd and apt-get.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed import ROOT
from testbed.build.cache import cache_dir
from testbed.cluster import engine
from testbed.support.commands import run
from testbed.support.errors import Unavailable

ProgramMaker = Callable[[str, str], None]

SETPRIV = Path("/usr/bin/setpriv")
NO_DAEMON = "echo 'Cannot connect to the Docker daemon' >&2; exit 1"
# It succeeds if the replacement of dockerd below is running.
DOCKER = """
case "$DOCKER_HOST" in
  unix://*) test -e "${DOCKER_HOST#unix://}" ;;
  *) echo 'Cannot connect to the Docker daemon' >&2; exit 1 ;;
esac"""
DOCKERD = """
home=${2%/daemon.json}
trap '/bin/rm "$home/docker.sock"; exit' TERM
echo $$ > "$home/dockerd.pid"
: > "$home/docker.sock"
while :; do /bin/sleep 0.05; done"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgramMaker]:
    """Set a PATH with only the programs of the test, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    if SETPRIV.exists():
        (folder / "setpriv").symlink_to(SETPRIV)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("DOCKER_HOST", raising=False)

    def make(name: str, body: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)

    # The paths of pytest's temporary folders are too long for sockets.
    with tempfile.TemporaryDirectory() as cache:
        monkeypatch.setenv("JOBGROUP_CACHE", cache)
        yield make


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def daemon(programs: ProgramMaker, as_root: None) -> Path:
    """Return the folder of a private dockerd that can start."""
    programs("docker", DOCKER)
    programs("dockerd", DOCKERD)
    programs("umount", "exit 1")
    return cache_dir() / "engine"


def is_running(folder: Path) -> bool:
    return (folder / "docker.sock").exists()


@contextmanager
def run_of_its_own(program: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program in another process, as root, and wait until its engine is running."""
    prelude = "import os, signal; os.geteuid = lambda: 0; from testbed.cluster import engine\n"
    with subprocess.Popen(
        [sys.executable, "-c", prelude + program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "up\n"
        yield runner


def test_the_machines_own_engine_is_used_as_it_is(programs: ProgramMaker) -> None:
    programs("docker", "exit 0")
    programs("dockerd", "exit 1")
    with engine.started() as found:
        assert found.env == os.environ


def test_without_docker_and_root_the_error_says_what_to_do(
    programs: ProgramMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("docker", NO_DAEMON)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    sentence = r"start Docker, or run as root \(docker info: Cannot connect"
    with pytest.raises(Unavailable, match=sentence), engine.started():
        pass


def test_without_apt_the_package_to_install_is_named(programs: ProgramMaker, as_root: None) -> None:
    with pytest.raises(Unavailable, match=r"install docker\.io by hand"), engine.started():
        pass


def test_a_package_that_cannot_be_downloaded_is_named(
    programs: ProgramMaker, as_root: None
) -> None:
    programs("docker", NO_DAEMON)
    programs("dpkg", "exit 0")
    programs("apt-get", "echo 'Reading...'; echo 'E: Could not resolve the mirror' >&2; exit 100")
    sentence = r"^Installing docker\.io failed: E: Could not resolve the mirror \(the whole"
    with pytest.raises(Unavailable, match=sentence), engine.started():
        pass


def test_the_service_that_a_package_starts_is_used(
    programs: ProgramMaker, as_root: None, tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    programs("docker", f"test -e {installed}")
    programs("dpkg", "exit 0")
    programs("apt-get", f": > {installed}; : > {tmp_path}/bin/dockerd")
    with engine.started() as found:
        assert "DOCKER_HOST" not in found.env


def test_a_private_engine_ends_with_the_run(daemon: Path) -> None:
    with engine.started() as private:
        assert private.env["DOCKER_HOST"] == f"unix://{daemon}/docker.sock"
        assert is_running(daemon)
    assert not is_running(daemon)


def test_the_next_run_uses_a_kept_engine_and_leaves_it(daemon: Path) -> None:
    with run_of_its_own("with engine.started(keep=True): print('up', flush=True)"):
        pass
    assert is_running(daemon)
    assert engine.running().env["DOCKER_HOST"] == f"unix://{daemon}/docker.sock"
    kept = (daemon / "dockerd.pid").read_text()
    with engine.started() as found:
        assert found.env["DOCKER_HOST"] == f"unix://{daemon}/docker.sock"
    assert is_running(daemon)
    assert (daemon / "dockerd.pid").read_text() == kept
    engine.stop_kept()
    assert not is_running(daemon)
    engine.stop_kept()  # does nothing


def test_the_containers_of_a_kept_engine_are_not_removed(
    daemon: Path, programs: ProgramMaker, tmp_path: Path
) -> None:
    with run_of_its_own("with engine.started(keep=True): print('up', flush=True)"):
        pass
    calls = tmp_path / "calls"
    programs("docker", f'echo "$*" >> {calls}; if [ "$1" = ps ]; then echo old; fi\n{DOCKER}')
    with engine.started():
        pass
    assert "rm" not in calls.read_text()
    engine.stop_kept()
    assert "rm --force --volumes old" in calls.read_text()


def test_the_containers_of_a_crashed_run_are_removed_first(
    daemon: Path, programs: ProgramMaker, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    programs("docker", f'echo "$*" >> {calls}; if [ "$1" = ps ]; then echo old; fi\n{DOCKER}')
    with engine.started():
        cleared = calls.read_text().splitlines()
    assert cleared[-2:] == ["rm --force --volumes old", "network prune --force"]


def test_a_failed_run_keeps_nothing(daemon: Path) -> None:
    with pytest.raises(Unavailable, match="no"), engine.started(keep=True):
        raise Unavailable("no")
    assert not is_running(daemon)


def test_a_missing_engine_is_an_error(programs: ProgramMaker) -> None:
    programs("docker", NO_DAEMON)
    with pytest.raises(Unavailable, match=r"^No container engine is running: start Docker"):
        engine.running()


def test_a_stale_pid_file_ends_no_other_process(daemon: Path) -> None:
    daemon.mkdir()
    with subprocess.Popen(["/bin/sleep", "60"]) as stranger:
        (daemon / "dockerd.pid").write_text(str(stranger.pid))
        try:
            with engine.started():
                assert (daemon / "dockerd.pid").read_text().strip() != str(stranger.pid)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_the_reason_of_a_failed_start_is_named(daemon: Path, programs: ProgramMaker) -> None:
    programs("dockerd", "echo starting; echo 'no space left on device'; exit 1")
    sentence = r"^dockerd did not start: no space left on device \(its log is .*dockerd\.log\)$"
    with pytest.raises(Unavailable, match=sentence), engine.started():
        pass


def test_a_path_that_is_too_long_for_a_socket_is_an_error(
    daemon: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JOBGROUP_CACHE", str(tmp_path / ("x" * 100)))
    with pytest.raises(Unavailable, match="set JOBGROUP_CACHE to a shorter path"), engine.started():
        pass


@pytest.mark.skipif(not SETPRIV.exists(), reason="needs util-linux's setpriv")
def test_the_daemon_ends_when_the_run_is_killed(daemon: Path) -> None:
    pause = "with engine.started(): print('up', flush=True); signal.pause()"
    with run_of_its_own(pause) as runner:
        runner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while is_running(daemon):
        assert time.monotonic() < deadline, "dockerd outlived the process that started it"
        time.sleep(0.05)


def test_it_does_not_change_the_network_of_the_host(daemon: Path) -> None:
    with engine.started():
        settings = json.loads((daemon / "daemon.json").read_text())
    assert settings["bridge"] == "none"
    for name in ("iptables", "ip6tables", "ip-forward", "ip-masq"):
        assert settings[name] is False


@pytest.mark.parametrize("held", [True, False])
def test_runc_is_wrapped_only_where_the_capability_is_missing(
    daemon: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    monkeypatch.setattr(engine, "_may", lambda capability: held)
    with engine.started():
        settings = json.loads((daemon / "daemon.json").read_text())
    assert ("default-runtime" in settings) is not held


def test_the_wrapper_removes_the_capability_from_the_configuration(
    daemon: Path, monkeypatch: pytest.MonkeyPatch, programs: ProgramMaker, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "_may", lambda capability: False)
    with engine.started():
        pass
    programs("runc", f'echo "$@" > {tmp_path}/asked')
    programs("sed", 'exec /usr/bin/sed "$@"')
    wanted = ["CAP_CHOWN", "CAP_SYS_RESOURCE", "CAP_KILL"]
    (tmp_path / "config.json").write_text(json.dumps({"bounding": wanted}, separators=(",", ":")))
    wrapper = daemon / "runc-without-sys-resource"
    subprocess.run([wrapper, "create", "--bundle", tmp_path, "some-id"], check=True)
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "bounding": ["CAP_CHOWN", "CAP_KILL"]
    }
    assert (tmp_path / "asked").read_text() == f"create --bundle {tmp_path} some-id\n"


def test_a_full_disk_is_named(programs: ProgramMaker) -> None:
    programs("tar", "echo 'tar: write error: No space left on device' >&2; echo bye; exit 2")
    with pytest.raises(Unavailable, match=r"^Packing failed because the disk is full; free some"):
        run("tar", doing="Packing")


def test_a_failure_has_the_last_line_and_the_path_of_the_log(programs: ProgramMaker) -> None:
    programs("tool", "echo much; echo 'the reason' >&2; exit 3")
    with pytest.raises(Unavailable) as failure:
        run("tool", "--flag", doing="Trying")
    log = cache_dir() / "failed-command.log"
    assert str(failure.value) == f"Trying failed: the reason (the whole output is in {log})"
    assert log.read_text() == "$ tool --flag\nmuch\nthe reason\n"


def test_a_line_with_an_error_is_preferred_to_the_last(programs: ProgramMaker) -> None:
    programs("tool", "echo 'ERROR: no such node' >&2; echo >&2; echo 'Output:' >&2; exit 1")
    with pytest.raises(Unavailable, match=r"^Trying failed: ERROR: no such node \("):
        run("tool", doing="Trying")


def test_a_missing_program_is_named(programs: ProgramMaker) -> None:
    with pytest.raises(
        Unavailable, match=r"^Trying failed: there is no tool on PATH; install it\.$"
    ):
        run("tool", doing="Trying")
