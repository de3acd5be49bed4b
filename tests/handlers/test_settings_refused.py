"""The operator exits at once on a wrong setting, with a message and an exit code that is not 0.

It does not exit on a problem that may disappear: Redis is down, or refuses a password that is being
changed. Then the operator is not ready, and /readyz reports why.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.servers.operator import MAIN
from testbed.servers.redis import RedisServer
from testbed.support.resources import manifest
from testbed.support.stages import PAY, SHIP, Stage
from testbed.support.waiting import wait_for

pytestmark = pytest.mark.server


def refused(**env: str) -> str:
    """Run an operator that must exit, and return its output."""
    command = [sys.executable, "-m", "kopf", "run", "--all-namespaces", "--standalone", str(MAIN)]
    settings = {"PATH": os.environ["PATH"], "KUBECONFIG": os.devnull, "PORT": "0", **env}
    done = subprocess.run(
        command, env=settings, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"REDIS_URL": "redis+cluster://a"}, "BULLMQ_PREFIX: a Redis Cluster needs a hash tag"),
        ({"REDIS_URL": "redis://a:6379,b:6379/0"}, "REDIS_URL: the Redis URL names several hosts"),
        ({"REDIS_URL": "http://a:6379"}, "REDIS_URL: the Redis URL must begin with redis://"),
        ({"BULLMQ_PREFIX": "two words"}, "BULLMQ_PREFIX: 'two words' must match"),
        ({"PORT": "http"}, "PORT: 'http' must be a number from 0 to 65535"),
        ({"WORKERS": "0"}, "WORKERS: '0' must be a number from 1 to 256"),
        ({"REDIS_PASSWORD_FILE": "/nowhere"}, "REDIS_PASSWORD_FILE: /nowhere cannot be read"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_operator_exits_with_a_message_on_a_wrong_setting(
    env: dict[str, str], sentence: str
) -> None:
    assert sentence in refused(**env)


def test_the_operator_exits_with_a_message_if_its_port_is_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104 (the operator listens on all addresses, too)
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(PORT=str(port))
    assert f"PORT: cannot listen on port {port}" in said


def test_a_password_in_the_url_is_not_printed() -> None:
    assert "secret" not in refused(REDIS_URL="redis://user:secret@a,b:6379/0")


async def test_the_operator_waits_while_redis_refuses_its_password(
    stage: Stage, tmp_path: Path
) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    with RedisServer(folder) as redis:
        ask(redis, "CONFIG SET requirepass right")
        password = tmp_path / "password"
        password.write_text("wrong")
        operator = stage.operator(REDIS_URL=redis.url, REDIS_PASSWORD_FILE=str(password))
        wait_for(lambda: operator.probe("/readyz")[0] == 503)
        assert operator.probe("/livez") == (200, "ok\n")
        assert f"Redis at 127.0.0.1:{redis.port} failed" in operator.probe("/readyz")[1]
        stage.resources.apply(manifest("order", PAY, SHIP))
        stage.resources.condition("order", "Reconciling", "True", "RedisUnavailable")
        ask(redis, "AUTH right", "CONFIG SET requirepass wrong")
        stage.resources.reaches("order", state="ACTIVE")
        wait_for(lambda: operator.probe("/readyz")[0] == 200)
        assert operator.server.code is None


def ask(redis: RedisServer, *lines: str) -> None:
    """Send commands to a Redis, and check each answer."""
    with socket.create_connection(("127.0.0.1", redis.port)) as connection:
        for line in lines:
            connection.sendall(line.encode() + b"\r\n")
            assert connection.recv(100) == b"+OK\r\n"
