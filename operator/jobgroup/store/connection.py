"""Clients of Redis. This module knows the kinds of Redis; no other asks which one it is."""

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from redis.asyncio import Redis
from redis.asyncio.connection import Connection, parse_url
from redis.crc import key_slot
from redis.exceptions import RedisError
from redis.maint_notifications import MaintNotificationsConfig

from jobgroup.errors import InvalidSpecError
from jobgroup.store.cluster import ClusterSlot
from jobgroup.store.credentials import FileCredentials
from jobgroup.store.locators import ASK_SECONDS, Locator, Opener
from jobgroup.store.pool import FIXED, Pool, SocketConnection, TcpConnection, TlsConnection
from jobgroup.store.redis_url import Kind, RedisUrl, hash_tag, parse, tagged
from jobgroup.store.sentinels import Sentinels
from jobgroup.store.tls import FILES, Certificates
from jobgroup.store.transience import UNAVAILABLE, is_transient, lacks_right, leave_if_cancelled

# A URL can set another number: redis://host/?max_connections=500.
MAX_CONNECTIONS = 100
# To leave a server that is frozen within seconds. Blocking reads take two seconds at most.
LOCATED_TIMEOUTS = {
    "socket_timeout": 3.5,
    "socket_connect_timeout": 1.5,
    "handshake_timeout": 1.0,
}


def connect(
    url: str | RedisUrl,
    prefix: str = "bull",
    credentials: FileCredentials | None = None,
    sentinel_credentials: FileCredentials | None = None,
    **options: Any,
) -> Redis:
    """Open a client for the keys of a prefix; only for a Cluster the prefix matters.

    It decodes all replies, replacing bytes that are not UTF-8. A call waits if all connections are
    in use; the default pool of redis-py would raise an error. Raise InvalidSpecError if the URL or
    the prefix cannot be used, or names a file with certificates that does not exist.
    """
    parts = parse(url) if isinstance(url, str) else url
    check_prefix(parts, prefix)
    for name in FILES:
        if (path := parts.options.get(name)) and not Path(path).is_file():
            raise InvalidSpecError(f"there is no file {path}, which is the parameter {name}")
    # The name of the library: an ACL would have to allow CLIENT SETINFO, which 7.0 does not know.
    given = {"max_connections": MAX_CONNECTIONS, "timeout": None, "driver_info": None, **options}
    converted = _converted(parts)
    tls = {name: converted.pop(name) for name in list(converted) if name.startswith("ssl_")}
    given |= converted | {"decode_responses": True, "encoding_errors": "replace"}
    if parts.kind in (Kind.SENTINEL, Kind.CLUSTER):
        # Only proxies of one address send them, and redis-py would follow these.
        nothing = MaintNotificationsConfig(enabled=False)
        given = {**LOCATED_TIMEOUTS, **given, "maint_notifications_config": nothing}
    given |= _login(parts.username, parts.password, credentials)
    kind: type = TcpConnection
    if parts.kind is Kind.SOCKET:
        kind, given["path"] = SocketConnection, parts.path
    else:
        given["host"], given["port"] = parts.hosts[0]
    try:
        certificates = Certificates(tls) if parts.any_tls else None
        if parts.tls:
            kind, given["certificates"] = TlsConnection, certificates
        pool = Pool(
            _locator(parts, prefix, credentials, sentinel_credentials, certificates),
            connection_class=kind,
            **given,
        )
        # redis-py checks parameters only when it makes a connection.
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError, RedisError):
        raise InvalidSpecError(
            "the Redis URL has a parameter that redis-py does not accept"
        ) from None
    return Redis.from_pool(pool)


def check_prefix(url: RedisUrl, prefix: str) -> None:
    """Raise InvalidSpecError if the keys of a prefix would not be in one slot of a Cluster."""
    if url.kind is Kind.CLUSTER and not hash_tag(prefix):
        raise InvalidSpecError(
            "a Redis Cluster needs a hash tag that puts all keys of the prefix into one slot:"
            f" use {tagged(prefix)}"
        )


def has_sentinels(url: RedisUrl) -> bool:
    """Return whether a URL names sentinels, which have users and passwords of their own."""
    return url.kind is Kind.SENTINEL


def lists_all_clients(redis: Redis) -> bool:
    """Return whether CLIENT LIST shows the clients of all queues."""
    pool = redis.connection_pool
    return not isinstance(pool, Pool) or pool.locator.lists_all_clients


def _converted(url: RedisUrl) -> dict[str, Any]:
    """Return the parameters of a URL as redis-py reads them."""
    try:
        return dict(parse_url(f"redis://?{urlencode(url.options)}"))
    except ValueError as error:
        raise InvalidSpecError(str(error)) from None


def _login(
    username: str, password: str, credentials: FileCredentials | None
) -> dict[str, str | FileCredentials]:
    if credentials:
        return {"credential_provider": credentials}
    given = {"username": username, "password": password}
    return {name: value for name, value in given.items() if value}


def _locator(
    url: RedisUrl,
    prefix: str,
    credentials: FileCredentials | None,
    sentinel_credentials: FileCredentials | None,
    certificates: Certificates | None,
) -> Locator:
    if url.kind is Kind.SENTINEL:
        login = _login(url.sentinel_username, url.sentinel_password, sentinel_credentials)
        return Sentinels(
            url.hosts, url.service, _opener(login, certificates if url.sentinel_tls else None)
        )
    if url.kind is Kind.CLUSTER:
        login = _login(url.username, url.password, credentials)
        slot = key_slot(prefix.encode())
        return ClusterSlot(url.hosts, slot, _opener(login, certificates))
    return FIXED


def _opener(login: dict[str, Any], certificates: Certificates | None) -> Opener:
    """Return what makes connections to the servers that know the address."""
    common: dict[str, Any] = {
        "protocol": 2,
        "driver_info": None,
        "decode_responses": True,
        "socket_timeout": ASK_SECONDS,
        "socket_connect_timeout": ASK_SECONDS,
        **login,
    }
    kind: type[Connection] = TcpConnection
    if certificates:
        kind, common["certificates"] = TlsConnection, certificates
    return lambda address: kind(host=address[0], port=address[1], **common)


__all__ = [
    "UNAVAILABLE",
    "RedisError",
    "connect",
    "is_transient",
    "lacks_right",
    "leave_if_cancelled",
    "lists_all_clients",
]
