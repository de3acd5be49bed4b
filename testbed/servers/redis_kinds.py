"""The kinds of Redis that tests run on, by name: REDIS_KIND=cluster-tls.

The suffix -tls stands for servers that have only TLS ports, -acl for the users and the rights that
docs/redis-in-production.md shows.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from redis import Redis, RedisError
from redis.crc import key_slot

from jobgroup.store.redis_url import Address, Kind, RedisUrl, name_of, parse
from testbed.servers.access import Access, restricted
from testbed.servers.certificates import Authority
from testbed.servers.redis import RedisServer
from testbed.servers.redis_cluster import ClusterServers, Member
from testbed.servers.redis_sentinel import SentinelServers
from testbed.support.errors import Unavailable

Servers = RedisServer | SentinelServers | ClusterServers

SINGLE = {
    "redis-6.2": "6.2",
    "redis-7.0": "7.0",
    "redis-8.0": "8.0",
    "valkey-8.1": "valkey-8.1",
}
KINDS = (*SINGLE, "sentinel", "cluster")
TLS, ACL = "-tls", "-acl"
CHOICE = f"{', '.join(KINDS)}. Each but redis-6.2 may end in -tls, each in -acl, both in -tls-acl."
PATIENT_MS = 20_000


def plain(kind: str) -> str:
    """Return a kind without its suffixes."""
    return kind.removesuffix(ACL).removesuffix(TLS)


def is_known(kind: str) -> bool:
    """Return whether there is such a kind."""
    return plain(kind) in KINDS and kind.removesuffix(ACL) != f"redis-6.2{TLS}"


def start_kind(kind: str, folder: Path) -> Servers:
    """Start servers of a kind."""
    secured, name = kind.removesuffix(ACL), plain(kind)
    if not is_known(kind):
        raise Unavailable(f"REDIS_KIND is {kind}; use one of {CHOICE}")
    authority = Authority(folder, "redis-authority") if secured.endswith(TLS) else None
    # A busy machine must not fail over in tests that do not expect it.
    if name == "sentinel":
        return SentinelServers(folder / name, authority=authority, down_after_ms=PATIENT_MS)
    if name == "cluster":
        return ClusterServers(folder / name, authority=authority, node_timeout_ms=PATIENT_MS)
    return RedisServer(folder / name, version=SINGLE[name], authority=authority)


def access_to(servers: Servers, kind: str) -> Access:
    """Return the URLs for each kind of client, and create the users that they name."""
    return restricted(servers) if kind.endswith(ACL) else Access.open(servers.url)


def masters(url: str) -> list[str]:
    """Return a URL for redis-py of each server that has data and accepts writes now."""
    parts = parse(url)
    if parts.kind is Kind.SENTINEL:
        command = ("SENTINEL GET-MASTER-ADDR-BY-NAME", parts.service)
        return [_direct(parts, _ask(_sentinels(parts), *command))]
    if parts.kind is Kind.CLUSTER:
        return [_direct(parts, each.address) for each in _members(parts) if each.slots]
    return [url]


def master_of(url: str, key: str) -> str:
    """Return a URL for redis-py of the server that has a key, or the keys of a prefix, now."""
    parts = parse(url)
    if parts.kind is not Kind.CLUSTER:
        return masters(url)[0]
    slot = key_slot(key.encode())
    return _direct(parts, next(each.address for each in _members(parts) if each.owns(slot)))


def prefix_for(url: str, name: str) -> str:
    """Return a prefix that this kind of Redis accepts."""
    return f"{{{name}}}" if is_cluster(url) else name


def is_cluster(url: str) -> bool:
    """Return whether a URL is that of a Cluster."""
    return parse(url).kind is Kind.CLUSTER


def _members(parts: RedisUrl) -> list[Member]:
    return [Member.parse(line) for line in _ask(parts, "CLUSTER", "NODES").splitlines()]


def _sentinels(parts: RedisUrl) -> RedisUrl:
    user, password = parts.sentinel_username, parts.sentinel_password
    tls = {name: parts.options[name] for name in parts.options if name.startswith("ssl_")}
    options = tls if parts.sentinel_tls else {}
    return replace(parts, tls=parts.sentinel_tls, username=user, password=password, options=options)


def _direct(parts: RedisUrl, address: Address) -> str:
    """Return the URL for one of the servers."""
    login = f"{quote(parts.username, safe='')}:{quote(parts.password, safe='')}@"
    where = f"{'' if login == ':@' else login}{name_of(address)}"
    return f"redis{'s' if parts.tls else ''}://{where}?{urlencode(parts.options)}"


def _ask(parts: RedisUrl, *command: str) -> Any:
    """Return the reply of the first host that answers."""
    for url in (_direct(parts, address) for address in parts.hosts):
        with suppress(RedisError), Redis.from_url(url, decode_responses=True) as client:
            return client.execute_command(*command)
    raise Unavailable(f"no server of {parts.location} answers")
