"""The chart's values: each is described, documented, and refused in a sentence if wrong."""

from pathlib import Path
from typing import Any

import pytest

from testbed.chart import (
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

ROOT = Path(__file__).resolve().parents[2]
SECRET = {"name": "redis", "urlKey": "uri"}


def refusal(values: Values, redis: Values = REDIS) -> str:
    with pytest.raises(Refused) as caught:
        render(values, redis=redis)
    return str(caught.value)


@pytest.mark.parametrize(
    ("redis", "sentence"),
    [
        ({}, "redis: say where Redis is: redis.url, or redis.existingSecret.name with"),
        (
            {"url": "redis://r", "bundled": {"enabled": True}},
            "redis: redis.url and redis.bundled.enabled are set; give only one of them",
        ),
        (
            {"url": "redis://r", "existingSecret": SECRET},
            "redis: redis.url and redis.existingSecret.urlKey are set; give only one of them",
        ),
        (
            {"existingSecret": {"urlKey": "uri"}},
            "redis.existingSecret.name: name the Secret that holds these keys",
        ),
        (
            {"url": "redis://r", "existingSecret": {"name": "redis"}},
            "redis.existingSecret: say what the Secret holds: urlKey, usernameKey or passwordKey",
        ),
        (
            {"bundled": {"enabled": True}, "tls": {"caSecret": "tls"}},
            "redis.bundled: it has neither a password nor TLS",
        ),
        (
            {"bundled": {"enabled": True}, "existingSecret": {"name": "r", "passwordKey": "p"}},
            "redis.bundled: it has neither a password nor TLS",
        ),
        ({"url": "http://r"}, "redis.url"),
        ({"url": "redis://:hunter2@r"}, "redis.url"),
    ],
    ids=str,
)
def test_a_redis_that_cannot_be_is_refused_in_a_sentence(redis: Values, sentence: str) -> None:
    assert sentence.replace(".", "/") in refusal({"redis": redis}, {}).replace(".", "/")


def test_a_release_that_no_service_can_be_called_after_is_refused_in_a_sentence() -> None:
    with pytest.raises(Refused) as caught:
        render(release="2024")
    said = "fullnameOverride: everything would be called 2024-jobgroup-operator, but the name of"
    assert said in str(caught.value)


def test_an_account_that_is_not_made_has_to_be_named() -> None:
    said = refusal({"serviceAccount": {"create": False}})
    assert "serviceAccount.name: name the account to use" in said


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
        # Services are called so, and their names have no dots and begin with a letter.
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
        ({"logFormat": "xml"}, "logFormat"),
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
def test_a_value_that_cannot_be_is_refused_with_its_name(values: Values, place: str) -> None:
    redis = {"redis": {**REDIS["redis"], **values.get("redis", {})}}
    said = refusal({**values, **redis}, {})
    assert "values don't meet the specifications of the schema" in said
    assert place in said


def test_every_value_is_described_and_no_other_is_taken() -> None:
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


def test_the_table_in_the_docs_is_what_the_chart_says() -> None:
    text = (ROOT / "docs/installing.md").read_text()
    assert values_table() in text, f"docs/installing.md is to hold:\n{values_table()}"
