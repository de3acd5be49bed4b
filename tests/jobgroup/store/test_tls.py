"""Clients of Sentinel and of a Cluster with TLS, passwords and client certificates."""

import asyncio
import logging
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobgroup import JobGroups, Store
from jobgroup.store.connection import RedisError, connect, is_transient
from jobgroup.store.settings import read_redis_settings
from jobgroup.store.tls import Certificates
from testbed.servers.certificates import Authority
from testbed.servers.redis_cluster import ClusterServers
from testbed.servers.redis_sentinel import SERVICE, SentinelServers
from testbed.servers.tls import TlsRedis

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        shutil.which("apt-get") is None, reason="this Redis is in packages of Debian"
    ),
]

PREFIX = "{bull}"
HERE = "IP:127.0.0.1"
Servers = SentinelServers | ClusterServers


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module", params=[SentinelServers, ClusterServers])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("servers")
    words: dict[str, Any] = {"password": "p@ss, word"}
    if request.param is SentinelServers:
        words |= {"sentinel_password": "another+word"}
    with request.param(folder / "servers", authority=authority, **words) as started:
        yield started


def open_files() -> int:
    return len([*Path("/dev/fd").iterdir()])


async def test_a_client_leaves_no_socket_open_whenever_it_is_closed(servers: Servers) -> None:
    """A TLS handshake can be cancelled at any time, and a server can be slow to end TLS."""
    before = open_files()
    for turns in range(0, 200, 4):
        async with JobGroups.connect(servers.url, PREFIX) as groups:
            call = asyncio.create_task(groups.store.ping())
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        for _ in range(2):
            await asyncio.sleep(0)
        assert open_files() == before, turns


async def test_a_renewed_client_certificate_is_used_for_new_connections(
    servers: Servers, authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "client.pem"
    file.write_bytes(Authority(tmp_path, "foreign").certify(HERE).read_bytes())
    env = {"REDIS_URL": servers.url, "BULLMQ_PREFIX": PREFIX, "REDIS_CERT_FILE": str(file)}
    settings = read_redis_settings(env)
    async with JobGroups(Store(settings.connect(), PREFIX)) as groups:
        with pytest.raises(RedisError) as raised:
            await groups.store.ping()
        assert is_transient(raised.value)
        file.write_bytes(authority.certify(HERE).read_bytes())
        await groups.store.ping()


async def test_connections_share_what_was_read(servers: Servers) -> None:
    redis = connect(servers.url, PREFIX)
    pool: Any = redis.connection_pool
    first, second = (pool.connection_class(**pool.connection_kwargs) for _ in range(2))
    assert first._certificates.get() is second._certificates.get()
    await redis.aclose()


def test_certificates_stay_in_use_while_their_file_cannot_be_read(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "client.pem"
    certificates = Certificates({"ssl_certfile": str(file)})
    with pytest.raises(FileNotFoundError):
        certificates.get()
    file.write_bytes(authority.certify(HERE).read_bytes())
    first = certificates.get()
    file.write_text("half of")
    with caplog.at_level(logging.WARNING):
        assert [certificates.get(), certificates.get()] == [first, first]
    assert [each.message.partition(": ")[0] for each in caplog.records] == [
        f"keeping the certificates that were in {file}"
    ]
    file.write_bytes(authority.certify(HERE).read_bytes())
    assert isinstance(certificates.get(), ssl.SSLContext)
    assert certificates.get() is not first


async def test_tls_may_be_used_to_the_sentinels_alone(authority: Authority, tmp_path: Path) -> None:
    with (
        SentinelServers(tmp_path / "servers") as servers,
        TlsRedis(servers.sentinels[0], authority.certify(HERE)) as endpoint,
    ):
        url = f"redis+sentinel://127.0.0.1:{endpoint.port}/{SERVICE}?sentinel_tls=true"
        env = {"REDIS_URL": url, "REDIS_CA_FILE": str(authority.certificate)}
        async with JobGroups(Store(read_redis_settings(env).connect(), PREFIX)) as groups:
            await groups.store.ping()
