"""The environment variables about Redis -> settings, or an error that names the wrong variable."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from jobgroup.definition.lifetime import MAX_SECONDS
from jobgroup.errors import InvalidSpecError
from jobgroup.store.connection import check_prefix, connect, has_sentinels
from jobgroup.store.credentials import FileCredentials
from jobgroup.store.redis_url import RedisUrl, parse

DEFAULT_URL = "redis://127.0.0.1:6379/0"
DEFAULT_PREFIX = "bull"
# Files with certificates, and redis-py's name for them.
_CERTIFICATES = {
    "REDIS_CA_FILE": "ssl_ca_certs",
    "REDIS_CERT_FILE": "ssl_certfile",
    "REDIS_KEY_FILE": "ssl_keyfile",
}
_LOGIN = ("REDIS_URL_FILE", "REDIS_USERNAME_FILE", "REDIS_PASSWORD_FILE")
_SENTINEL_LOGIN = (
    *("REDIS_URL_FILE", "REDIS_SENTINEL_USERNAME_FILE", "REDIS_SENTINEL_PASSWORD_FILE"),
)


class SettingsError(Exception):
    """A setting that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Which Redis to use, and the key prefix of its queues; docs/running.md explains them."""

    url: RedisUrl
    prefix: str
    # Where user and password are read again, and from which files; not part of what is compared.
    env: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def location(self) -> str:
        """Return the hosts and ports, or the socket, without user and password."""
        return self.url.location

    def connect(self, **options: Any) -> Redis:
        """Open a client; user and password are read again if they come from files."""
        return connect(
            self.url,
            self.prefix,
            self._credentials(_LOGIN, "Redis", "username", "password"),
            self._credentials(
                _SENTINEL_LOGIN, "a sentinel", "sentinel_username", "sentinel_password"
            ),
            **options,
        )

    def _credentials(
        self, variables: tuple[str, ...], of: str, username: str, password: str
    ) -> FileCredentials | None:
        files = [Path(path) for name in variables if (path := self.env.get(name))]
        if not files:
            return None

        def read() -> tuple[str, str]:
            url = _read_url(self.env, "REDIS_URL")
            return getattr(url, username), getattr(url, password)

        return FileCredentials(read, files, of)


def read_redis_settings(
    env: Mapping[str, str] = os.environ, url: str = "", prefix: str = ""
) -> RedisSettings:
    """Read and check the environment; a URL and a prefix from the command line replace it."""
    if url:
        # The password in a file must not be sent to another server.
        env = {name: value for name, value in env.items() if not name.startswith("REDIS_")}
        env["REDIS_URL"] = url
    found = _read_url(env, "--redis" if url else "REDIS_URL")
    checked = prefix or text_setting(
        env, "BULLMQ_PREFIX", DEFAULT_PREFIX, r"[^\s:]{1,64}(:[^\s:]{1,64})*"
    )
    try:
        check_prefix(found, checked)
    except InvalidSpecError as error:
        raise SettingsError(f"{'--prefix' if prefix else 'BULLMQ_PREFIX'}: {error}") from None
    kept = {name: env[name] for name in env if name.startswith("REDIS_")}
    return RedisSettings(found, checked, kept)


def _read_url(env: Mapping[str, str], name: str) -> RedisUrl:
    """Read the URL; it, users, passwords and certificates may come from files."""
    given = _file(env, "REDIS_URL_FILE").strip() or env.get("REDIS_URL") or DEFAULT_URL
    try:
        url = parse(given)
        url = replace(
            url,
            username=_file(env, "REDIS_USERNAME_FILE") or url.username,
            password=_file(env, "REDIS_PASSWORD_FILE") or url.password,
            sentinel_username=_file(env, "REDIS_SENTINEL_USERNAME_FILE") or url.sentinel_username,
            sentinel_password=_file(env, "REDIS_SENTINEL_PASSWORD_FILE") or url.sentinel_password,
            options={**url.options, **_certificates(env, url)},
        )
        # redis-py checks the values of parameters.
        connect(url, "{any}")
    except InvalidSpecError as error:
        raise SettingsError(f"{name}: {error}") from None
    for variable in _SENTINEL_LOGIN[1:]:
        if env.get(variable) and not has_sentinels(url):
            raise SettingsError(f"{variable}: only a redis+sentinel:// URL has sentinels")
    return url


def _certificates(env: Mapping[str, str], url: RedisUrl) -> dict[str, str]:
    found = {}
    for variable, option in _CERTIFICATES.items():
        if path := env.get(variable):
            if not url.any_tls:
                raise SettingsError(
                    f"{variable}: only a rediss:// URL uses certificates, or rediss+sentinel://"
                    " and rediss+cluster://"
                )
            if not Path(path).is_file():
                raise SettingsError(f"{variable}: there is no file {path}")
            found[option] = path
    if "ssl_keyfile" in found and "ssl_certfile" not in found:
        raise SettingsError("REDIS_KEY_FILE: a key needs the certificate in REDIS_CERT_FILE")
    return found


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


def seconds_setting(env: Mapping[str, str], name: str) -> int | None:
    """Return a variable with a number of seconds; None if it is not set."""
    value = env.get(name)
    if not value:
        return None
    if not (value.isascii() and value.isdecimal()) or int(value) > MAX_SECONDS:
        raise SettingsError(f"{name}: {value!r} must be a number from 0 to {MAX_SECONDS}")
    return int(value)
