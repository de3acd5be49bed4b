"""The command line and a Redis behind TLS."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from testbed.servers.certificates import Authority
from testbed.servers.redis import RedisServer
from testbed.servers.tls import TlsRedis
from tests.jobgroup.cli.command_line import ORDER, Cli


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


def test_the_url_names_the_ca(server: RedisServer, tmp_path: Path) -> None:
    ours, theirs = (Authority(tmp_path, name) for name in ("ours", "theirs"))
    with (
        TlsRedis(server, ours.certify("IP:127.0.0.1")) as redis,
        Redis.from_url(server.url) as store,
    ):
        wrong = Cli(f"{redis.url}?ssl_ca_certs={theirs.certificate}", "bull")
        done = wrong("add", "-", stdin=ORDER)
        assert done.returncode == 3
        (said,) = done.stderr.splitlines()
        assert said.startswith(f"jobgroup: Redis at 127.0.0.1:{redis.port} cannot be reached: ")
        assert "certificate verify failed" in said
        assert store.keys() == []

        right = Cli(f"{redis.url}?ssl_ca_certs={ours.certificate}", "bull")
        assert right("add", "-", stdin=ORDER).returncode == 0
        assert right("drive", "--once").returncode == 0
        assert "order-1" in right("show", "order-1").stdout
        assert store.exists("bull:payments:wait")
