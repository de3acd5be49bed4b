"""Sentinel and Cluster of the testbed: what a test may do to them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, RedisCluster, exceptions

from testbed.servers.certificates import Authority
from testbed.servers.processes import is_running
from testbed.servers.redis import HERE
from testbed.servers.redis_cluster import ClusterServers
from testbed.servers.redis_kinds import start_kind
from testbed.servers.redis_sentinel import SERVICE, SentinelServers
from testbed.support.errors import Unavailable
from testbed.support.waiting import wait_for

SPECIAL = "p@ss"
SPACED = "p ss"
KEY = "{x}"

pytestmark = pytest.mark.skipif(
    shutil.which("apt-get") is None, reason="this Redis is in packages of Debian"
)
Start = Callable[..., SentinelServers | ClusterServers]
both = pytest.mark.parametrize("start", [SentinelServers, ClusterServers])


@both
def test_a_killed_master_is_replaced_and_joins_again(tmp_path: Path, start: Start) -> None:
    with start(tmp_path / "servers") as servers:
        master = servers.master(KEY)
        master.call("SET", KEY, 1)
        assert master.call("WAIT", 1, 0) >= 1
        master.kill()
        servers.wait_for_another_master(master, KEY)
        assert servers.master(KEY).call("GET", KEY) == "1"
        servers.start_again(master)
        servers.wait_until_ready()
        assert servers.master(KEY) is not master
        assert master.call("INFO", "replication")["role"] == "slave"
    assert not any(is_running(node.pid) for node in servers.nodes)


@both
def test_a_failover_and_a_frozen_master(tmp_path: Path, start: Start) -> None:
    with start(tmp_path / "servers") as servers:
        first = servers.master(KEY)
        servers.fail_over(KEY)
        second = servers.master(KEY)
        assert second is not first
        servers.wait_until_ready()
        second.freeze()
        servers.wait_for_another_master(second, KEY)
        second.thaw()
        servers.wait_until_ready()


def test_sentinel_with_tls_and_passwords(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    folder = tmp_path / "servers"
    access: dict[str, Any] = {"ssl": True, "ssl_ca_certs": str(authority.certificate)}
    with SentinelServers(
        folder, password=SPECIAL, sentinel_password=SPACED, authority=authority
    ) as servers:
        assert servers.url.startswith("rediss+sentinel://:p%40ss@127.0.0.1:")
        assert servers.url.endswith(
            f"/shop/0?ssl_ca_certs={authority.certificate}&sentinel_password=p%20ss"
        )
        port = servers.sentinels[0].port
        with Redis(
            host=HERE, port=port, password=SPACED, decode_responses=True, **access
        ) as client:
            _, master = client.sentinel_get_master_addr_by_name(SERVICE)
        with Redis(host=HERE, port=master, password=SPECIAL, **access) as client:
            assert client.ping()
        servers.fail_over()
        servers.wait_until_ready()
        with pytest.raises(exceptions.AuthenticationError):
            Redis(host=HERE, port=port, **access).ping()


def test_cluster_with_tls_and_a_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    with ClusterServers(tmp_path / "servers", password=SPECIAL, authority=authority) as servers:
        first = servers.nodes[0]
        assert servers.url.startswith(f"rediss+cluster://:p%40ss@127.0.0.1:{first.port},127.0.0.1:")
        assert servers.url.endswith(f"?ssl_ca_certs={authority.certificate}")
        with RedisCluster(
            host=HERE,
            port=first.port,
            password=SPECIAL,
            ssl=True,
            ssl_ca_certs=str(authority.certificate),
        ) as client:
            for key in ("{x}", "{y}", "{z}"):
                client.set(key, 1)
            target = next(each for each in servers.nodes[:3] if each is not servers.master(KEY))
            servers.move_slot(servers.slot(KEY), target)
            servers.wait_until_ready()
            assert servers.master(KEY) is target
            assert client.get(KEY) == b"1"


def test_a_slot_moves_key_by_key(tmp_path: Path) -> None:
    with ClusterServers(tmp_path / "servers") as servers:
        source = servers.master(KEY)
        target = next(each for each in servers.nodes[:3] if each is not source)
        for number in range(3):
            source.call("SET", f"{KEY}{number}", 1)
        way = servers.moving(servers.slot(KEY), target)
        next(way)
        assert source.call("CLUSTER", "COUNTKEYSINSLOT", servers.slot(KEY)) == 2
        with pytest.raises(exceptions.TryAgainError):
            source.call("MGET", *(f"{KEY}{number}" for number in range(3)))
        assert len(list(way)) == 2
        assert servers.master(KEY) is target


def test_a_quorum_of_sentinels_can_be_lost_and_return(tmp_path: Path) -> None:
    with SentinelServers(tmp_path / "servers") as servers:
        for sentinel in servers.sentinels[1:]:
            sentinel.kill()
        wait_for(lambda: not has_quorum(servers))
        for sentinel in servers.sentinels[1:]:
            sentinel.start_again()
        servers.wait_until_ready()
        assert has_quorum(servers)


def has_quorum(servers: SentinelServers) -> bool:
    try:
        servers.sentinels[0].call("SENTINEL", "CKQUORUM", SERVICE)
    except exceptions.ResponseError:
        return False
    return True


def test_an_unknown_kind_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    for kind in ("redis-6.2-tls", "dragonfly"):
        with pytest.raises(Unavailable, match=f"{kind}; use one of redis-6.2, .*, sentinel, cl"):
            start_kind(kind, tmp_path)
