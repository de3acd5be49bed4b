"""The Redis of the tests: private, on a free port, and stopped when its owner ends."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis, exceptions

from testbed import ROOT
from testbed.servers import processes
from testbed.servers.certificates import Authority
from testbed.servers.processes import is_running
from testbed.servers.redis import DEBIAN, VERSIONS, RedisServer, find_redis
from testbed.support.errors import Unavailable
from testbed.support.waiting import wait_for

SPECIAL = "p@ss"


def require_debian(version: str) -> None:
    if version in DEBIAN and shutil.which("apt-get") is None:
        pytest.skip("this version is only in packages of Debian, which apt-get downloads")


def test_it_serves_and_stops(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server, Redis.from_url(server.url) as client:
        assert client.ping()
        pid = server.pid
    assert not is_running(pid)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_runs_with_its_client(tmp_path: Path, version: str) -> None:
    require_debian(version)
    with RedisServer(tmp_path, version=version) as server:
        info = server.call("INFO", "server")
        assert info.get("valkey_version", info["redis_version"]).startswith(version[-3:])
        client = next(find_redis(version).parent.glob("*-cli"))
        asked = [str(client), "-p", str(server.port), "PING"]
        assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "PONG\n"


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Unavailable, match=r"no Redis 5.0 here; use one of 6.2, 7.0, 8.0, valkey"):
        find_redis("5.0")


def test_a_password_and_tls_are_required(tmp_path: Path) -> None:
    require_debian("8.0")
    authority = Authority(tmp_path, "ours")
    with RedisServer(tmp_path, version="8.0", password=SPECIAL, authority=authority) as server:
        with Redis.from_url(server.url) as client:
            assert client.ping()
        with (
            Redis.from_url(server.url.replace("p%40ss", "other")) as client,
            pytest.raises(exceptions.AuthenticationError),
        ):
            client.ping()
        with (
            Redis.from_url(server.url.replace("rediss", "redis").partition("?")[0]) as client,
            pytest.raises(exceptions.ConnectionError),
        ):
            client.ping()


def test_a_frozen_server_answers_again_once_it_is_thawed(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path) as server,
        Redis.from_url(server.url, socket_timeout=0.2, retry=None) as client,
    ):
        server.freeze()
        with pytest.raises(exceptions.TimeoutError):
            client.ping()
        server.thaw()
        assert client.ping()
        server.freeze()
    assert not is_running(server.pid)


def test_a_crash_loses_everything_unless_it_is_persistent(tmp_path: Path) -> None:
    for persistent, expected in ((False, None), (True, b"1")):
        folder = tmp_path / str(persistent)
        folder.mkdir()
        with RedisServer(folder, persistent=persistent) as server:
            with Redis.from_url(server.url) as client:
                client.set("k", 1)
                # With appendfsync everysec, the write has already reached the kernel.
                server.kill()
                server.start_again()
            with Redis.from_url(server.url) as client:
                assert client.get("k") == expected


def test_a_taken_port_is_replaced_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        taken = squatter.getsockname()[1]
        ports = iter([taken, processes.free_port()])
        monkeypatch.setattr(processes, "free_port", lambda: next(ports))
        with RedisServer(tmp_path) as server:
            assert server.port != taken


def test_another_redis_on_the_port_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    with RedisServer(tmp_path / "theirs") as theirs:
        ports = iter([theirs.port, processes.free_port()])
        monkeypatch.setattr(processes, "free_port", lambda: next(ports))
        with RedisServer(tmp_path / "ours") as ours:
            assert ours.port != theirs.port


def test_a_missing_redis_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JOBGROUP_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(Unavailable, match=r"no recent redis on PATH.*install redis by hand"):
        find_redis()


def test_the_one_on_path_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "redis-server").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis() == tmp_path / "redis-server"


def run_inner(folder: Path, body: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a test file in another pytest, with the testbed's fixtures."""
    return subprocess.run(
        inner_command(folder, body),
        cwd=folder,
        env=inner_env(**env),
        capture_output=True,
        text=True,
        check=False,
    )


def inner_command(folder: Path, body: str) -> list[str]:
    test = folder / "test_inner.py"
    test.write_text(body)
    options = [
        "-c",
        str(ROOT / "pyproject.toml"),
        "-p",
        "testbed.support.fixtures",
        "-p",
        "no:cacheprovider",
    ]
    return [sys.executable, "-m", "pytest", *options, "-q", str(test)]


def inner_env(**env: str) -> dict[str, str]:
    outer = {key: value for key, value in os.environ.items() if key != "REDIS_URL"}
    return {**outer, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}", **env}


LEAK = """
async def test_leaks(redis, prefix):
    await redis.set({key}, 1)

async def test_the_next_one_starts_clean(redis):
    assert await redis.dbsize() == 0
"""


@pytest.mark.parametrize("key", ['f"{prefix}:x"', '"elsewhere"'])
def test_a_test_that_leaves_a_key_behind_fails(tmp_path: Path, key: str) -> None:
    done = run_inner(tmp_path, LEAK.format(key=key))
    assert "the test left 1 keys behind" in done.stdout
    assert "2 passed, 1 error" in done.stdout


def test_with_redis_url_the_other_keys_of_that_redis_stay(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    with RedisServer(folder) as theirs, Redis.from_url(theirs.url) as client:
        client.set("somebody's", 1)
        body = """
async def test_leaks(redis, prefix):
    assert await redis.get("somebody's") == "1"
    await redis.set(f"{prefix}:x", 1)
"""
        done = run_inner(tmp_path, body, REDIS_URL=theirs.url)
        assert "the test left 1 keys behind" in done.stdout
        assert client.keys() == [b"somebody's"]


def test_group_keys_are_not_deleted_with_bullmqs_own(tmp_path: Path) -> None:
    body = """
async def test_leaks(redis, prefix, queue):
    name = queue("payments")
    await redis.set(f"{prefix}:{name}:meta", 1)
    await redis.set(f"{prefix}:{name}:groups:g", 1)
"""
    done = run_inner(tmp_path, body)
    assert "the test left 1 keys behind" in done.stdout
    assert ":groups:g" in done.stdout


def test_the_server_ends_with_a_killed_pytest(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    body = f"""
import os, pathlib, time
async def test_hangs(redis):
    note = pathlib.Path({str(pid_file)!r})
    note.with_suffix(".part").write_text(str((await redis.info())["process_id"]))
    note.with_suffix(".part").rename(note)
    time.sleep(600)
"""
    command = inner_command(tmp_path, body)
    with subprocess.Popen(command, cwd=tmp_path, env=inner_env(), stdout=subprocess.DEVNULL) as run:
        try:
            wait_for(pid_file.exists)
            server = int(pid_file.read_text())
            assert is_running(server)
        finally:
            run.send_signal(signal.SIGKILL)
    wait_for(lambda: not is_running(server))
