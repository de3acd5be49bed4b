"""The values of the chart: each is described and documented, and refused if it is invalid."""

from typing import Any

import pytest

from testbed import ROOT
from testbed.support.chart import (
    REDIS,
    Refused,
    Values,
    defaults,
    leaves,
    render,
    schema,
    value_at,
    values_table,
)

SECRET = {"name": "redis", "urlKey": "uri"}


def refusal(values: Values, redis: Values = REDIS) -> str:
    with pytest.raises(Refused) as caught:
        render(values, redis=redis)
    return str(caught.value)


@pytest.mark.parametrize(
    ("redis", "sentence"),
    [
        ({}, "redis: set redis.url, or redis.existingSecret.name with"),
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
        ({"url": "redis://:hunter2@r"}, "redis.url"),
    ],
    ids=str,
)
def test_an_invalid_redis_configuration_is_refused(redis: Values, sentence: str) -> None:
    assert sentence.replace(".", "/") in refusal({"redis": redis}, {}).replace(".", "/")


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
        ({"imagePullSecrets": ["pull"]}, "imagePullSecrets"),
        ({"imagePullSecrets": [{"nam": "pull"}]}, "nam"),
        ({"watchNamespaces": "shop"}, "watchNamespaces"),
        ({"watchNamespaces": ["team-*"]}, "watchNamespaces"),
        ({"watchNamespaces": ["shop", "shop"]}, "watchNamespaces"),
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
        ({"topologySpread": {"topologyKey": ""}}, "topologyKey"),
        ({"networkPolicy": {"redisPorts": []}}, "redisPorts"),
        ({"networkPolicy": {"apiServerPorts": [0]}}, "apiServerPorts"),
        ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "interval"),
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
    described = {path for path, _ in leaves(schema())} - {"global"}
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


def test_the_table_in_the_docs_matches_the_schema() -> None:
    text = (ROOT / "docs/installing.md").read_text()
    assert values_table() in text, f"docs/installing.md must contain:\n{values_table()}"
