"""The URL of Redis: its parts, or a sentence about what is wrong with it. Pure.

urllib.parse refuses a list of hosts with ports. No message repeats a part of the URL that may
belong to a password.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import parse_qsl, unquote

from jobgroup.errors import InvalidSpecError

Address = tuple[str, int]


class Kind(Enum):
    """How to find the server that has the data."""

    SOCKET = "unix"
    SINGLE = "redis"
    SENTINEL = "redis+sentinel"
    CLUSTER = "redis+cluster"


_SCHEMES = {kind.value: (kind, False) for kind in Kind}
_SCHEMES |= {
    kind.value.replace("redis", "rediss"): (kind, True) for kind in Kind if kind is not Kind.SOCKET
}
_PORTS = {Kind.SINGLE: 6379, Kind.SENTINEL: 26379, Kind.CLUSTER: 6379}
# The parameters that redis-py reads, and ours about sentinels.
_TLS_OPTIONS = frozenset(
    f"ssl_{name}"
    for name in (
        *("ca_certs", "ca_data", "ca_path", "cert_reqs", "certfile", "check_hostname", "ciphers"),
        *("exclude_verify_flags", "include_verify_flags", "keyfile", "min_version", "password"),
    )
)
_OPTIONS = _TLS_OPTIONS | {
    *("client_name", "db", "health_check_interval", "legacy_responses", "lib_name"),
    *("lib_version", "max_connections", "password", "protocol", "retry_on_timeout"),
    *("socket_connect_timeout", "socket_keepalive", "socket_read_size", "socket_timeout"),
    *("timeout", "username"),
}
_OF_SENTINELS = frozenset({"sentinel_username", "sentinel_password", "sentinel_tls"})
# A name, or an IP address with an optional zone.
_HOST = re.compile(r"[\w.:-]+(%[\w.-]+)?")
_ADDRESS = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]*)(?::([0-9]{0,5}))?")

EXAMPLES = {
    Kind.SOCKET: "unix:///run/redis.sock",
    Kind.SINGLE: "redis://user:password@host:6379/0",
    Kind.SENTINEL: "redis+sentinel://user:password@host1:26379,host2:26379/mymaster/0",
    Kind.CLUSTER: "redis+cluster://user:password@host1:6379,host2:6379",
}


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """Where Redis is, and how to connect. The representation has no secrets."""

    kind: Kind
    tls: bool
    hosts: tuple[Address, ...]
    path: str = ""
    service: str = ""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    sentinel_username: str = field(default="", repr=False)
    sentinel_password: str = field(default="", repr=False)
    sentinel_tls: bool = False
    # Parameters for redis-py, by its names.
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def location(self) -> str:
        """Return the hosts and ports, or the socket, without user and password."""
        if self.kind is Kind.SOCKET:
            return self.path
        hosts = ",".join(name_of(address) for address in self.hosts)
        return f"{hosts}/{self.service}" if self.service else hosts

    @property
    def any_tls(self) -> bool:
        """Return whether any of the servers is connected to with TLS."""
        return self.tls or self.sentinel_tls


def name_of(address: Address) -> str:
    """Return host:port, with an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse(url: str) -> RedisUrl:
    """Return the parts of a URL; raise InvalidSpecError with a sentence about a mistake."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in _SCHEMES:
        raise InvalidSpecError(
            "the Redis URL must begin with redis://, rediss://, unix://, redis+sentinel://,"
            " rediss+sentinel://, redis+cluster:// or rediss+cluster://"
        )
    kind, tls = _SCHEMES[scheme.lower()]
    authority, path, query = _split(rest, kind)
    user, _, hosts = authority.rpartition("@")
    if "," in user.partition("@")[2]:
        raise InvalidSpecError(
            f"the Redis URL must name user and password once, before the first host, as in"
            f" {EXAMPLES[kind]}, with the special characters of a password percent-encoded"
        )
    username, _, password = user.partition(":")
    options = _options(query, kind)
    service, database = _path(path, kind)
    if database:
        options.setdefault("db", database)
    _check_database(options.get("db", ""), kind)
    if kind is Kind.CLUSTER and options.pop("db", "0") != "0":
        raise InvalidSpecError("a Redis Cluster has only the database 0")
    sentinel_tls = options.pop("sentinel_tls", str(tls)).lower()
    if sentinel_tls not in ("true", "false"):
        raise InvalidSpecError("the parameter sentinel_tls of the Redis URL must be true or false")
    found = RedisUrl(
        kind,
        tls,
        () if kind is Kind.SOCKET else _hosts(hosts, kind),
        unquote(path) if kind is Kind.SOCKET else "",
        service,
        unquote(username) or options.pop("username", ""),
        unquote(password) or options.pop("password", ""),
        options.pop("sentinel_username", ""),
        options.pop("sentinel_password", ""),
        kind is Kind.SENTINEL and sentinel_tls == "true",
        {name: options[name] for name in options if name not in ("username", "password")},
    )
    if not found.any_tls and (wrong := sorted(options.keys() & _TLS_OPTIONS)):
        raise InvalidSpecError(
            f"the Redis URL has the parameter {wrong[0]}, but no TLS: use a rediss... scheme"
        )
    return found


def _split(rest: str, kind: Kind) -> tuple[str, str, str]:
    """Return the users and hosts, the path and the query of what follows the scheme."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    outside = rest[len(authority) :]
    if "@" in outside or "#" in outside:
        raise InvalidSpecError(
            f"the Redis URL must look like {EXAMPLES[kind]}, with the special characters of a"
            " password percent-encoded"
        )
    path, _, query = outside.partition("?")
    return authority, path, query


def _options(query: str, kind: Kind) -> dict[str, str]:
    # Of several values, redis-py takes the first. A plus is no space, as in the rest of a URL.
    found = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    options = dict(reversed(found))
    for name in sorted(options):
        if name in _OF_SENTINELS and kind is not Kind.SENTINEL:
            raise InvalidSpecError(
                f"the Redis URL has the parameter {name}, which only redis+sentinel:// and"
                " rediss+sentinel:// have"
            )
        if name not in _OPTIONS | _OF_SENTINELS:
            what = f" {name}" if re.fullmatch("[a-z_]{1,40}", name) else ""
            raise InvalidSpecError(
                f"the Redis URL has the unknown parameter{what}; those of redis-py are known"
            )
        if not options[name]:
            raise InvalidSpecError(f"the parameter {name} of the Redis URL is empty")
    return options


def _path(path: str, kind: Kind) -> tuple[str, str]:
    """Return the name of the service and the database."""
    if kind is Kind.SOCKET:
        if not path:
            raise InvalidSpecError("the Redis URL names no socket, as in unix:///run/redis.sock")
        return "", ""
    service, database = "", path.removeprefix("/")
    if kind is Kind.SENTINEL:
        service, _, database = database.partition("/")
        if not service:
            raise InvalidSpecError(
                "the Redis URL must name the service that the sentinels watch, as in"
                " redis+sentinel://host:26379/mymaster/0"
            )
    _check_database(database, kind)
    return unquote(service), database


def _check_database(text: str, kind: Kind) -> None:
    if not re.fullmatch("[0-9]*", text):
        is_sentinel = kind is Kind.SENTINEL
        example = "redis+sentinel://host:26379/mymaster/0" if is_sentinel else "redis://host:6379/0"
        raise InvalidSpecError(f"the database must be a number, as in {example}")


def _hosts(text: str, kind: Kind) -> tuple[Address, ...]:
    texts = text.split(",")
    if kind is Kind.SINGLE:
        if len(texts) > 1:
            raise InvalidSpecError(
                "the Redis URL names several hosts: use redis+sentinel:// for sentinels, or"
                " redis+cluster:// for a Redis Cluster"
            )
        return (_address(text, "the host", _PORTS[kind], "localhost"),)
    if not text:
        raise InvalidSpecError(f"the Redis URL names no host, as in {EXAMPLES[kind]}")
    return tuple(
        _address(each, f"host {place}" if len(texts) > 1 else "the host", _PORTS[kind])
        for place, each in enumerate(texts, 1)
    )


def _address(text: str, what: str, port: int, otherwise: str = "") -> Address:
    found = _ADDRESS.fullmatch(text.strip())
    if found is None and text.count(":") > 1:
        raise InvalidSpecError(
            f"{what} of the Redis URL is not host:port; an IPv6 address must be in brackets, as in"
            " [::1]:6379"
        )
    if found is None or (found[2] and not 0 < int(found[2]) < 65536):
        raise InvalidSpecError(f"the port of {what} of the Redis URL is not one from 1 to 65535")
    host = unquote(found[1].strip("[]")) or otherwise
    if not host:
        raise InvalidSpecError(f"{what} of the Redis URL is empty")
    if not _HOST.fullmatch(host):
        raise InvalidSpecError(f"{what} of the Redis URL is neither a name nor an address")
    return host, int(found[2] or port)


def hash_tag(prefix: str) -> str:
    """Return what Redis Cluster hashes of all keys of a prefix, or nothing if keys differ."""
    found = re.match(r"[^{]*\{([^}]+)\}", prefix)
    return found[1] if found else ""


def tagged(prefix: str) -> str:
    """Return a prefix with a hash tag that is like one without."""
    return "{" + (re.sub("[{}]", "", prefix) or "bull") + "}"
