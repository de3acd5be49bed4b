"""Each environment variable of the operator: its default, its values, and why it is refused."""

import os
import socket
from pathlib import Path

import pytest

from handlers import settings
from handlers.settings import SettingsError, read_settings
from jobgroup.store.redis_url import parse
from jobgroup.store.settings import RedisSettings


@pytest.fixture(autouse=True)
def _outside_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(settings, "_NAMESPACE_FILE", tmp_path / "namespace")


def refusal(**env: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read_settings(env)
    return str(caught.value)


@pytest.mark.parametrize(
    "env", [{}, dict.fromkeys(("REDIS_URL", "PORT", "POD_NAME", "WORKERS", "POOL_OPT_IN"), "")]
)
def test_everything_has_a_default_and_empty_means_default(env: dict[str, str]) -> None:
    found = read_settings(env)
    assert found == settings.Settings(
        redis=RedisSettings(parse("redis://127.0.0.1:6379/0"), "bull"),
        identity=f"{socket.gethostname()}_{os.getpid()}",
        namespace="default",
        lease_name="jobgroup-operator",
        namespaces=(),
        label_selector="",
        port=8080,
        workers=16,
        api_qps=500,
        api_burst=1000,
        pool_max_replicas=100,
        pool_opt_in=False,
        watch_seconds=60,
        metrics_by_namespace=False,
        group_ttl_seconds=None,
        jobgroup_ttl_seconds=None,
    )


def test_the_identity_is_the_name_of_the_pod() -> None:
    assert read_settings({"POD_NAME": "jobgroups-0"}).identity == "jobgroups-0"


@pytest.mark.parametrize(
    ("given", "expected"), [(("shop",), ("shop",)), (("team-*",), ()), ((), ("bank",))]
)
def test_the_namespaces_of_the_command_take_precedence(
    given: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    found = read_settings({"KOPF_RUN_NAMESPACES": "bank"}, namespaces=given)
    assert found.namespaces == expected


def test_the_namespace_comes_from_the_service_account(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("sagas\n")
    assert read_settings({}).namespace == "sagas"
    assert read_settings({"POD_NAMESPACE": "other"}).namespace == "other"


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("POD_NAMESPACE", "kube-system", "namespace", "kube-system"),
        ("LEASE_NAME", "sagas.leader", "lease_name", "sagas.leader"),
        ("KOPF_RUN_NAMESPACES", "shop", "namespaces", ("shop",)),
        ("KOPF_RUN_NAMESPACES", "shop bank-1", "namespaces", ("shop", "bank-1")),
        # A pattern, which kopf resolves.
        ("KOPF_RUN_NAMESPACES", "shop team-*", "namespaces", ()),
        ("KOPF_RUN_NAMESPACES", "!shop", "namespaces", ()),
        ("WATCH_LABEL_SELECTOR", "team=shop", "label_selector", "team=shop"),
        ("WATCH_LABEL_SELECTOR", "a.b/c in (d, e),!f", "label_selector", "a.b/c in (d, e),!f"),
        ("PORT", "0", "port", 0),
        ("PORT", "65535", "port", 65535),
        ("WORKERS", "1", "workers", 1),
        ("WORKERS", "256", "workers", 256),
        ("API_QPS", "1", "api_qps", 1),
        ("API_QPS", "100000", "api_qps", 100_000),
        ("API_BURST", "1", "api_burst", 1),
        ("API_BURST", "100000", "api_burst", 100_000),
        ("POOL_MAX_REPLICAS", "1", "pool_max_replicas", 1),
        ("POOL_MAX_REPLICAS", "10000", "pool_max_replicas", 10_000),
        ("POOL_OPT_IN", "true", "pool_opt_in", True),
        ("POOL_OPT_IN", "false", "pool_opt_in", False),
        ("WATCH_TIMEOUT_SECONDS", "3", "watch_seconds", 3),
        ("WATCH_TIMEOUT_SECONDS", "3600", "watch_seconds", 3600),
        ("METRICS_BY_NAMESPACE", "true", "metrics_by_namespace", True),
        ("METRICS_BY_NAMESPACE", "false", "metrics_by_namespace", False),
        ("GROUP_TTL_SECONDS", "0", "group_ttl_seconds", 0),
        ("GROUP_TTL_SECONDS", "315360000", "group_ttl_seconds", 315_360_000),
        ("JOBGROUP_TTL_SECONDS", "604800", "jobgroup_ttl_seconds", 604_800),
    ],
)
def test_a_valid_value_is_accepted(name: str, value: str, field: str, expected: object) -> None:
    assert getattr(read_settings({name: value}), field) == expected


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("POD_NAME", "a b", r"'a b' must match \S{1,253}"),
        ("POD_NAMESPACE", "Shop", "'Shop' must match [a-z0-9-]{1,63}"),
        ("POD_NAMESPACE", "../x", "'../x' must match [a-z0-9-]{1,63}"),
        ("LEASE_NAME", "a/b", "'a/b' must match [a-z0-9.-]{1,253}"),
        ("LEASE_NAME", "a\n", r"'a\n' must match [a-z0-9.-]{1,253}"),
        ("WATCH_LABEL_SELECTOR", "a=b&c", r"'a=b&c' must match [-A-Za-z0-9_./=!,() ]{0,1024}"),
        ("API_QPS", "0", "'0' must be a number from 1 to 100000"),
        ("API_QPS", "0.5", "'0.5' must be a number from 1 to 100000"),
        ("API_BURST", "100001", "'100001' must be a number from 1 to 100000"),
        ("WATCH_TIMEOUT_SECONDS", "2", "'2' must be a number from 3 to 3600"),
        ("METRICS_BY_NAMESPACE", "yes", "'yes' must be true or false"),
        ("GROUP_TTL_SECONDS", "-1", "'-1' must be a number from 0 to 315360000"),
        ("GROUP_TTL_SECONDS", "7d", "'7d' must be a number from 0 to 315360000"),
        ("JOBGROUP_TTL_SECONDS", "315360001", "'315360001' must be a number from 0 to 315360000"),
        ("PORT", "-1", "'-1' must be a number from 0 to 65535"),
        ("PORT", "65536", "'65536' must be a number from 0 to 65535"),
        ("PORT", "http", "'http' must be a number from 0 to 65535"),
        ("PORT", "80.0", "'80.0' must be a number from 0 to 65535"),
        ("WORKERS", "0", "'0' must be a number from 1 to 256"),
        ("WORKERS", "257", "'257' must be a number from 1 to 256"),
        ("WORKERS", " ", "' ' must be a number from 1 to 256"),
        ("POOL_MAX_REPLICAS", "0", "'0' must be a number from 1 to 10000"),
        ("POOL_MAX_REPLICAS", "10001", "'10001' must be a number from 1 to 10000"),
        ("POOL_OPT_IN", "yes", "'yes' must be true or false"),
    ],
)
def test_an_invalid_value_is_refused_with_its_variable(
    name: str, value: str, sentence: str
) -> None:
    assert refusal(**{name: value}) == f"{name}: {sentence}"
