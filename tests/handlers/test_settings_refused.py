"""Wrong settings end the operator at once, with one sentence and a code that is not 0.

What may mend itself does not end it: Redis that is away, or refuses a password that is just being
changed. Then it stays, is not ready, and says why.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.operators import MAIN
from testbed.redis_server import RedisServer
from testbed.resources import manifest
from testbed.stages import PAY, SHIP, Stage
from testbed.waiting import wait_for

NOT_YET = "REDIS_URL: Sentinel and Cluster are not supported yet; name one Redis server"


def refused(**env: str) -> str:
    """Run an operator that is to end by itself, and return what it said."""
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
        ({"REDIS_URL": "redis+sentinel://a:26379,b:26379/mymaster"}, NOT_YET),
        ({"REDIS_URL": "redis+cluster://a:6379"}, NOT_YET),
        ({"REDIS_URL": "redis://a:6379,b:6379/0"}, NOT_YET),
        ({"REDIS_URL": "http://a:6379"}, "REDIS_URL: the Redis URL must look like redis://"),
        ({"BULLMQ_PREFIX": "two words"}, "BULLMQ_PREFIX: 'two words' must match"),
        ({"PORT": "http"}, "PORT: 'http' must be a number from 0 to 65535"),
        ({"WORKERS": "0"}, "WORKERS: '0' must be a number from 1 to 256"),
        ({"REDIS_PASSWORD_FILE": "/nowhere"}, "REDIS_PASSWORD_FILE: /nowhere cannot be read"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_setting_ends_it_with_a_sentence(env: dict[str, str], sentence: str) -> None:
    assert sentence in refused(**env)


def test_a_port_that_is_taken_ends_it_with_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104 (the operator listens on all addresses, too)
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(PORT=str(port))
    assert f"PORT: nobody can listen on {port}" in said


def test_a_password_in_the_url_is_never_said() -> None:
    assert "secret" not in refused(REDIS_URL="redis://user:secret@a,b:6379/0")


async def test_a_wrong_password_is_waited_out(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    with RedisServer(folder) as redis:
        ask(redis, "CONFIG SET requirepass right")
        password = tmp_path / "password"
        password.write_text("wrong")
        operator = stage.operator(REDIS_URL=redis.url, REDIS_PASSWORD_FILE=str(password))
        wait_for(lambda: operator.probe("/readyz")[0] == 503)
        assert operator.probe("/livez") == (200, "ok\n")
        assert f"Redis at 127.0.0.1:{redis.port} does not answer" in operator.probe("/readyz")[1]
        stage.resources.apply(manifest("order", PAY, SHIP))
        stage.resources.condition("order", "Reconciling", "True", "RedisError")
        ask(redis, "AUTH right", "CONFIG SET requirepass wrong")
        stage.resources.reaches("order", state="ACTIVE")
        wait_for(lambda: operator.probe("/readyz")[0] == 200)
        assert operator.server.code is None


def ask(redis: RedisServer, *lines: str) -> None:
    """Send commands to a Redis, and wait until each is answered well."""
    with socket.create_connection(("127.0.0.1", redis.port)) as connection:
        for line in lines:
            connection.sendall(line.encode() + b"\r\n")
            assert connection.recv(100) == b"+OK\r\n"
