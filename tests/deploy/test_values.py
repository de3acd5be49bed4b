"""The values of the chart: each is described and documented, and refused if it is invalid."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import ROOT
from testbed.support.chart import (
    CHART,
    REDIS,
    UNUSED,
    Refused,
    Values,
    defaults,
    leaves,
    readme,
    render,
    schema,
    value_at,
)

SECRET = {"name": "redis", "urlKey": "uri"}
IN_THE_URL = (
    "redis.url: remove the user name and the password from the URL; put them into a Secret and name"
    " it in redis.existingSecret"
)


def refusal(values: Values, redis: Values = REDIS) -> str:
    with pytest.raises(Refused) as caught:
        render(values, redis=redis)
    return str(caught.value)


@pytest.mark.parametrize(
    ("redis", "sentence"),
    [
        ({}, "redis: set redis.url, or redis.addresses, or redis.existingSecret.name with"),
        (
            {"url": "redis://r", "addresses": ["r:1"]},
            "redis: redis.url and redis.addresses are set; set only one of them",
        ),
        ({"addresses": ["r"]}, 'redis.addresses: "r" is not host:port'),
        ({"addresses": ["a:1,b:2"]}, 'redis.addresses: "a:1,b:2" is not host:port'),
        (
            {"addresses": ["joe:hunter2@r"]},
            "redis.addresses: remove the user name and the password; put them into a Secret",
        ),
        (
            {"addresses": ["r:1", "q:1"]},
            "redis.addresses: for several addresses, set redis.sentinel.master if they are",
        ),
        (
            {"addresses": ["r:1"], "sentinel": {"master": "m"}, "cluster": True},
            "redis: redis.sentinel.master and redis.cluster are set; set only one of them",
        ),
        (
            {"addresses": ["r:1"], "cluster": True},
            "redis.prefix: a Redis Cluster needs a hash tag that puts all keys of the prefix into"
            " one slot: use {bull}",
        ),
        (
            {"url": "rediss+cluster://r:1", "prefix": "a{}{b}"},
            "redis.prefix: a Redis Cluster needs",
        ),
        (
            {"addresses": ["r:1"], "cluster": True, "prefix": "{b}", "database": 1},
            "redis.database: a Redis Cluster has only the database 0",
        ),
        (
            {"url": "redis://r", "sentinel": {"master": "m"}},
            "redis.sentinel.master: only redis.addresses uses it; a URL says this itself",
        ),
        (
            {"url": "redis://r", "cluster": True},
            "redis.cluster: only redis.addresses uses it; a URL says this itself",
        ),
        (
            {"url": "redis://r", "database": 1},
            "redis.database: only redis.addresses uses it; a URL says this itself",
        ),
        (
            {"url": "redis://r", "tls": {"enabled": True}},
            "redis.tls.enabled: only redis.addresses uses it; a URL says this itself",
        ),
        (
            {"addresses": ["r:1"], "tls": {"caSecret": "tls"}},
            "redis.tls: certificates need TLS; set redis.tls.enabled=true with redis.addresses",
        ),
        (
            {"url": "redis://r", "tls": {"certSecret": "tls"}},
            "redis.tls: certificates need TLS; set redis.tls.enabled=true with redis.addresses",
        ),
        (
            {
                "addresses": ["r:1"],
                "sentinel": {"existingSecret": {"name": "s", "usernameKey": "u"}},
            },
            "redis.sentinel.existingSecret: there are no sentinels; set redis.sentinel.master",
        ),
        (
            {"addresses": ["r:1"], "sentinel": {"existingSecret": {"name": "s"}}},
            "redis.sentinel.existingSecret: set the keys of the Secret: usernameKey or",
        ),
        (
            {"addresses": ["r:1"], "sentinel": {"existingSecret": {"usernameKey": "u"}}},
            "redis.sentinel.existingSecret.name: set the name of the Secret that contains",
        ),
        (
            {"url": "redis://r", "bundled": {"enabled": True}},
            "redis: redis.url and redis.bundled.enabled are set; set only one of them",
        ),
        (
            {"url": "redis://r", "existingSecret": SECRET},
            "redis: redis.url and redis.existingSecret.urlKey are set; set only one of them",
        ),
        (
            {"existingSecret": {"urlKey": "uri"}},
            "redis.existingSecret.name: set the name of the Secret that contains these keys",
        ),
        (
            {"url": "redis://r", "existingSecret": {"name": "redis"}},
            "redis.existingSecret: set the keys of the Secret: urlKey, usernameKey or passwordKey",
        ),
        (
            {"bundled": {"enabled": True}, "tls": {"caSecret": "tls"}},
            "redis.bundled: the bundled Redis has no password and no TLS",
        ),
        (
            {"bundled": {"enabled": True}, "existingSecret": {"name": "r", "passwordKey": "p"}},
            "redis.bundled: the bundled Redis has no password and no TLS",
        ),
        ({"url": "http://r"}, "redis.url"),
        ({"url": "redis://:hunter2@r"}, IN_THE_URL),
        ({"url": "rediss://joe:hunter2@r", "existingSecret": SECRET}, IN_THE_URL),
    ],
    ids=str,
)
def test_an_invalid_redis_configuration_is_refused(redis: Values, sentence: str) -> None:
    said = refusal({"redis": redis}, {})
    assert sentence.replace(".", "/") in said.replace(".", "/")
    assert "hunter2" not in said


def test_a_name_that_is_not_valid_for_a_service_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        render(release="2024")
    message = "fullnameOverride: 2024-jobgroup-operator is not a valid Service name"
    assert message in str(caught.value)


def test_a_service_account_that_is_not_created_must_be_named() -> None:
    said = refusal({"serviceAccount": {"create": False}})
    assert "serviceAccount.name: set the name of an existing account" in said


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": "two"}, "replicas"),
        ({"replicas": -1}, "replicas"),
        ({"replicas": 1.5}, "replicas"),
        ({"image": {"name": "x"}}, "name"),
        ({"image": {"repository": ""}}, "repository"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"image": {"registry": "https://registry.example"}}, "registry"),
        ({"image": {"digest": "0123"}}, "digest"),
        ({"imagePullSecrets": ["pull"]}, "imagePullSecrets"),
        ({"imagePullSecrets": [{"nam": "pull"}]}, "nam"),
        ({"watchNamespaces": "shop"}, "watchNamespaces"),
        ({"watchNamespaces": ["team-*"]}, "watchNamespaces"),
        ({"watchNamespaces": ["shop", "shop"]}, "watchNamespaces"),
        ({"watch": {"labelSelector": "team=shop&limit=1"}}, "labelSelector"),
        ({"fullnameOverride": "Sagas"}, "fullnameOverride"),
        # The names of Services have no dots and begin with a letter.
        ({"fullnameOverride": "my.sagas"}, "fullnameOverride"),
        ({"fullnameOverride": "2024"}, "fullnameOverride"),
        ({"nameOverride": "my.sagas"}, "nameOverride"),
        ({"redis": {"uri": "x"}}, "uri"),
        ({"redis": {"prefix": "a b"}}, "prefix"),
        ({"redis": {"existingSecret": {"key": "x"}}}, "key"),
        ({"redis": {"tls": {"caKey": ""}}}, "caKey"),
        ({"redis": {"bundled": {"storage": "much"}}}, "storage"),
        ({"redis": {"bundled": {"storage": "1K"}}}, "storage"),
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"workers": 257}, "workers"),
        ({"api": {"qps": 0}}, "qps"),
        ({"api": {"burst": 0}}, "burst"),
        ({"logFormat": "xml"}, "logFormat"),
        ({"workerPools": {"maxReplicas": 0}}, "maxReplicas"),
        ({"workerPools": {"maxReplicas": 10_001}}, "maxReplicas"),
        ({"workerPools": {"optIn": "yes"}}, "optIn"),
        ({"crds": {"install": "yes"}}, "install"),
        ({"rbac": {"verbs": []}}, "verbs"),
        ({"resources": {"request": {}}}, "request"),
        ({"nodeSelector": {"disk": 1}}, "nodeSelector"),
        ({"podLabels": []}, "podLabels"),
        ({"enabled": "yes"}, "enabled"),
        ({"openshift": "yes"}, "openshift"),
        ({"podSecurityContext": []}, "podSecurityContext"),
        ({"securityContext": []}, "securityContext"),
        ({"redis": {"bundled": {"podSecurityContext": []}}}, "podSecurityContext"),
        ({"dnsConfig": []}, "dnsConfig"),
        ({"strategy": "Recreate"}, "strategy"),
        ({"deploymentAnnotations": {"note": 1}}, "deploymentAnnotations"),
        # Selectors contain it.
        ({"commonLabels": {"app.kubernetes.io/name": "another"}}, "commonLabels"),
        ({"extraArgs": "--verbose"}, "extraArgs"),
        ({"extraEnv": {"NAME": "value"}}, "extraEnv"),
        ({"extraEnv": [{"value": "x"}]}, "extraEnv"),
        ({"extraVolumes": [{"emptyDir": {}}]}, "extraVolumes"),
        ({"extraVolumeMounts": [{"name": "ca"}]}, "extraVolumeMounts"),
        ({"extraObjects": [1]}, "extraObjects"),
        ({"topologySpread": {"topologyKey": ""}}, "topologyKey"),
        ({"networkPolicy": {"redisPorts": []}}, "redisPorts"),
        ({"networkPolicy": {"apiServerPorts": [0]}}, "apiServerPorts"),
        ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "interval"),
        ({"metrics": {"serviceMonitor": {"scrapeTimeout": "soon"}}}, "scrapeTimeout"),
        ({"metrics": {"podMonitor": {"scrapeTimeout": "soon"}}}, "scrapeTimeout"),
        ({"metrics": {"podMonitor": {"relabelings": {}}}}, "relabelings"),
        ({"metrics": {"rules": {"thresholds": {"activeSeconds": "1d"}}}}, "activeSeconds"),
        ({"metrics": {"rules": {"thresholds": {"wakeupLagSeconds": 0}}}}, "wakeupLagSeconds"),
        ({"metrics": {"rules": {"thresholds": {"leaderSeconds": 1}}}}, "leaderSeconds"),
        ({"uninstall": {"timeoutSeconds": 1}}, "timeoutSeconds"),
    ],
    ids=str,
)
def test_an_invalid_value_is_refused_with_its_name(values: Values, place: str) -> None:
    redis = {"redis": {**REDIS["redis"], **values.get("redis", {})}}
    said = refusal({**values, **redis}, {})
    assert "values don't meet the specifications of the schema" in said
    assert place in said


def test_every_value_is_described_and_others_are_refused() -> None:
    def walk(node: dict[str, Any], path: str) -> None:
        assert node["description"].endswith("."), path
        if "properties" in node:
            assert node["additionalProperties"] is False, path
            for name, field in node["properties"].items():
                walk(field, f"{path}.{name}")

    walk(schema(), "")
    described = {path for path, _ in leaves(schema())} - UNUSED
    assert {path for path in described if value_at(defaults(), path) is None} == set()

    def paths(values: Any, path: str = "") -> set[str]:
        if path in described:
            return {path}
        assert isinstance(values, dict), f"{path} is not in values.schema.json"
        return {
            found
            for name, value in values.items()
            for found in paths(value, f"{path}.{name}" if path else name)
        }

    assert paths(defaults()) == described


def test_the_readme_is_up_to_date() -> None:
    assert (CHART / "README.md").read_text() == readme(), "run `make generate`"


def test_make_generate_writes_the_readme(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "testbed.support.chart", str(tmp_path)]
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}"}
    subprocess.run(command, env=env, cwd=tmp_path, check=True)
    text = (tmp_path / "README.md").read_text()
    assert text == readme()
    assert (
        '| `logFormat` | `"full"` | The format of log lines: `plain`, `full` or `json`. |' in text
    )
