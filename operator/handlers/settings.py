"""The environment -> the operator's settings, or an error that names the wrong variable."""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobgroup.resource.workerpool_spec import MAX_REPLICAS
from jobgroup.store.settings import (
    RedisSettings,
    SettingsError,
    read_redis_settings,
    seconds_setting,
    text_setting,
)

__all__ = ["Settings", "SettingsError", "read_settings"]

# The API server checks the syntax.
_SELECTOR = r"[-A-Za-z0-9_./=!,() ]{0,1024}"
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the operator; docs/running.md explains them."""

    redis: RedisSettings
    identity: str
    namespace: str
    lease_name: str
    namespaces: tuple[str, ...]
    label_selector: str
    port: int
    workers: int
    api_qps: int
    api_burst: int
    pool_max_replicas: int
    pool_opt_in: bool
    watch_seconds: int
    metrics_by_namespace: bool
    group_ttl_seconds: int | None
    jobgroup_ttl_seconds: int | None

    @property
    def release(self) -> str:
        """Return the name of this release, which all of its replicas share."""
        return f"{self.namespace}/{self.lease_name}"


def read_settings(env: Mapping[str, str] = os.environ, namespaces: Sequence[str] = ()) -> Settings:
    """Read and check the environment; `namespaces` are those of the command that was started."""
    return Settings(
        redis=read_redis_settings(env),
        identity=text_setting(env, "POD_NAME", _process_name(), r"\S{1,253}"),
        namespace=text_setting(env, "POD_NAMESPACE", _own_namespace(), r"[a-z0-9-]{1,63}"),
        lease_name=text_setting(env, "LEASE_NAME", "jobgroup-operator", r"[a-z0-9.-]{1,253}"),
        namespaces=_exact_names(namespaces or env.get("KOPF_RUN_NAMESPACES", "").split()),
        label_selector=text_setting(env, "WATCH_LABEL_SELECTOR", "", _SELECTOR),
        port=read_port(env),
        workers=_number(env, "WORKERS", 16, 1, 256),
        api_qps=_number(env, "API_QPS", 500, 1, 100_000),
        api_burst=_number(env, "API_BURST", 1000, 1, 100_000),
        pool_max_replicas=_number(env, "POOL_MAX_REPLICAS", 100, 1, MAX_REPLICAS),
        pool_opt_in=_flag(env, "POOL_OPT_IN"),
        watch_seconds=_number(env, "WATCH_TIMEOUT_SECONDS", 60, 3, 3600),
        metrics_by_namespace=_flag(env, "METRICS_BY_NAMESPACE"),
        group_ttl_seconds=seconds_setting(env, "GROUP_TTL_SECONDS"),
        jobgroup_ttl_seconds=seconds_setting(env, "JOBGROUP_TTL_SECONDS"),
    )


def read_port(env: Mapping[str, str]) -> int:
    """Read the port of the probes."""
    return _number(env, "PORT", 8080, 0, 65535)


def _number(env: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    value = env.get(name) or str(default)
    if not value.isdecimal() or not least <= int(value) <= most:
        raise SettingsError(f"{name}: {value!r} must be a number from {least} to {most}")
    return int(value)


def _flag(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name) or "false"
    if value not in ("true", "false"):
        raise SettingsError(f"{name}: {value!r} must be true or false")
    return value == "true"


def _exact_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the namespaces that kopf watches; none if they contain a pattern."""
    return () if any(re.search("[^a-z0-9-]", name) for name in names) else tuple(names)


def _process_name() -> str:
    """Return a name of this process, for a replica that is no pod."""
    return f"{socket.gethostname()}_{os.getpid()}"


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except OSError:
        return "default"
