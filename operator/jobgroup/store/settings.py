"""The environment -> frozen settings, or the sentence that says which variable is wrong."""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from redis.asyncio.connection import parse_url

from jobgroup.connection import locate
from jobgroup.errors import InvalidSpecError

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class SettingsError(Exception):
    """A setting that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All that can be set from outside, each with its default; docs/running.md explains them."""

    redis_url: str
    prefix: str
    identity: str
    namespace: str
    lease_name: str
    namespaces: tuple[str, ...]
    port: int
    workers: int

    @property
    def redis_place(self) -> str:
        """Name the Redis without its password."""
        return locate(self.redis_url)


def read_settings(env: Mapping[str, str] = os.environ) -> Settings:
    """Read and check the environment."""
    return Settings(
        redis_url=_redis_url(env),
        prefix=_text(env, "BULLMQ_PREFIX", "bull", r"[^\s:]{1,64}(:[^\s:]{1,64})*"),
        identity=_text(env, "POD_NAME", socket.gethostname(), r"\S{1,253}") + f"_{os.getpid()}",
        namespace=_text(env, "POD_NAMESPACE", _own_namespace(), r"[a-z0-9-]{1,63}"),
        lease_name=_text(env, "LEASE_NAME", "jobgroup-operator", r"[a-z0-9.-]{1,253}"),
        namespaces=_exact_names(env.get("KOPF_RUN_NAMESPACES", "").split()),
        port=_number(env, "PORT", 8080, 0, 65535),
        workers=_number(env, "WORKERS", 16, 1, 256),
    )


def _redis_url(env: Mapping[str, str]) -> str:
    """Put the URL together; it, user, password and certificates may stand in files."""
    given = _file(env, "REDIS_URL_FILE").strip() or env.get("REDIS_URL")
    parts = _checked(given or "redis://127.0.0.1:6379/0")
    user = quote(_file(env, "REDIS_USERNAME_FILE"), safe="") or parts.username
    password = quote(_file(env, "REDIS_PASSWORD_FILE"), safe="") or parts.password
    if user or password:
        who = f"{quote(user or '', safe='%')}:{quote(password or '', safe='%')}"
        parts = parts._replace(netloc=f"{who}@{parts.netloc.rpartition('@')[2]}")
    if authority := env.get("REDIS_CA_FILE"):
        if parts.scheme != "rediss":
            raise SettingsError("REDIS_CA_FILE: only a rediss:// URL has certificates to check")
        if not Path(authority).is_file():
            raise SettingsError(f"REDIS_CA_FILE: there is no file {authority}")
        query = "&".join(filter(None, [f"ssl_ca_certs={quote(authority)}", parts.query]))
        parts = parts._replace(query=query)
    return urlunsplit(parts)


def _checked(url: str) -> SplitResult:
    """Refuse a URL that is not that of one Redis server, or that redis-py would misread."""
    scheme, _, rest = url.partition("://")
    hosts = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    if "sentinel" in scheme.lower() or "cluster" in scheme.lower() or "," in hosts:
        raise SettingsError(
            "REDIS_URL: Sentinel and Cluster are not supported yet; name one Redis server"
        )
    try:
        locate(url)
        parse_url(url)
    except (InvalidSpecError, ValueError) as error:
        raise SettingsError(f"REDIS_URL: {error}") from None
    parts = urlsplit(url)
    if parts.scheme != "unix" and not re.fullmatch("/?[0-9]*", parts.path):
        raise SettingsError("REDIS_URL: the database must be a number, as in redis://host:6379/0")
    return parts


def _file(env: Mapping[str, str], name: str) -> str:
    if not (path := env.get(name)):
        return ""
    try:
        return Path(path).read_text("utf-8").strip("\r\n")
    except OSError as error:
        raise SettingsError(f"{name}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{name}: {path} is not text in UTF-8") from None


def _text(env: Mapping[str, str], name: str, default: str, pattern: str) -> str:
    value = env.get(name) or default
    if not re.fullmatch(pattern, value):
        raise SettingsError(f"{name}: {value!r} must match {pattern}")
    return value


def _number(env: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    value = env.get(name) or str(default)
    if not value.isdecimal() or not least <= int(value) <= most:
        raise SettingsError(f"{name}: {value!r} must be a number from {least} to {most}")
    return int(value)


def _exact_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the namespaces kopf watches; nothing if it has to look which ones they are."""
    return () if any(re.search("[^a-z0-9-]", name) for name in names) else tuple(names)


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except OSError:
        return "default"
