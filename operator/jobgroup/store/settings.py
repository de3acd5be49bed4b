"""The environment variables about Redis -> settings, or an error that names the wrong variable."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from redis.asyncio.connection import parse_url

from jobgroup.errors import InvalidSpecError
from jobgroup.store.connection import connect, locate


class SettingsError(Exception):
    """A setting that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Which Redis to use, and the key prefix of its queues; docs/running.md explains them."""

    url: str
    prefix: str

    @property
    def location(self) -> str:
        """Return the host and port, or the socket, without user and password."""
        return locate(self.url)


def read_redis_settings(env: Mapping[str, str] = os.environ) -> RedisSettings:
    """Read and check the environment."""
    prefix = text_setting(env, "BULLMQ_PREFIX", "bull", r"[^\s:]{1,64}(:[^\s:]{1,64})*")
    return RedisSettings(_redis_url(env), prefix)


def _redis_url(env: Mapping[str, str]) -> str:
    """Build the URL; it, the user, the password and the CA may come from files."""
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
    """Raise if a URL does not name one Redis server, or if redis-py would misread it."""
    scheme, _, rest = url.partition("://")
    hosts = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    if "sentinel" in scheme.lower() or "cluster" in scheme.lower() or "," in hosts:
        raise SettingsError(
            "REDIS_URL: Sentinel and Cluster are not supported yet; name one Redis server"
        )
    try:
        locate(url)
        parse_url(url)
        connect(url)
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


def text_setting(env: Mapping[str, str], name: str, default: str, pattern: str) -> str:
    """Return a variable that matches a pattern."""
    value = env.get(name) or default
    if not re.fullmatch(pattern, value):
        raise SettingsError(f"{name}: {value!r} must match {pattern}")
    return value
