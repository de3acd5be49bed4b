"""Values with which users adapt the chart to their cluster: ids, images, additions, alerts."""

from base64 import b64decode
from typing import Any

import pytest
import yaml

from jobgroup.crd.generate import CRDS
from jobgroup.resource.kinds import API_GROUP
from testbed.support.chart import CHART, REDIS, Values, render
from testbed.support.promql import complaints
from tests.deploy.rendered import (
    BUNDLED,
    EVERYTHING,
    config_map,
    container,
    env_of,
    one,
    pods,
    summary,
)

IDS = {"runAsUser", "runAsGroup", "fsGroup"}
NO_IDS = dict.fromkeys(IDS)
DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    "values",
    [
        {**BUNDLED, "openshift": True},
        {
            "podSecurityContext": NO_IDS,
            "redis": {"bundled": {"enabled": True, "podSecurityContext": NO_IDS}},
        },
        {**BUNDLED, "openshift": True, "securityContext": {"runAsUser": 7, "runAsGroup": 7}},
    ],
    ids=["openshift", "null", "openshift-container"],
)
def test_pods_without_ids(values: Values) -> None:
    found = list(pods(render(values, redis={})))
    assert len(found) == 3
    for _, pod in found:
        for context in (pod["securityContext"], container(pod)["securityContext"]):
            assert context.keys() & IDS == set()
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }


def test_the_default_ids_are_those_of_the_images() -> None:
    manifests = render(EVERYTHING, redis={})
    for kind, suffix, uid in (
        ("Deployment", "", 65532),
        ("Job", "-uninstall", 65532),
        ("StatefulSet", "-redis", 999),
    ):
        context = one(manifests, kind, suffix)["spec"]["template"]["spec"]["securityContext"]
        assert {name: context[name] for name in IDS} == dict.fromkeys(IDS, uid)


def test_a_time_to_live_that_is_removed_from_the_values_is_not_set() -> None:
    """`--set` with null removes a value; 0 seconds would remove all ended groups."""
    for name in ("groupTtlSeconds", "jobGroupTtlSeconds"):
        for _, pod in pods(render({"retention": {name: None}})):
            assert not [each for each in env_of(pod) if "TTL" in str(each)]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({"tag": "1"}, "jobgroup-operator:1"),
        ({"tag": "1", "registry": "r.example:5000"}, "r.example:5000/jobgroup-operator:1"),
        ({"tag": "1", "digest": DIGEST}, f"jobgroup-operator@{DIGEST}"),
        (
            {"registry": "r.example", "repository": "a/b", "digest": DIGEST},
            f"r.example/a/b@{DIGEST}",
        ),
    ],
)
def test_the_name_of_the_image(image: Values, expected: str) -> None:
    assert {container(pod)["image"] for _, pod in pods(render({"image": image}))} == {expected}


@pytest.mark.parametrize(
    "redis", [REDIS["redis"], {"url": "rediss://r:1", "tls": {"caSecret": "t"}}]
)
def test_additional_volumes_are_beside_those_of_the_chart(redis: Values) -> None:
    values: Values = {
        "redis": redis,
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca-bundle"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
    }
    own = ["redis"] if "tls" in redis else []
    for _, pod in pods(render(values, redis={})):
        assert [each["name"] for each in pod["volumes"]] == [*own, "ca"]
        assert [each["name"] for each in container(pod)["volumeMounts"]] == [*own, "ca"]


def test_additional_objects_are_templates() -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-text}\n"
    objects: list[Any] = [
        config_map("{{ .Release.Name }}-object", port="{{ .Values.port }}"),
        text,
    ]
    manifests = render({"extraObjects": objects})
    assert {"ConfigMap -object", "ConfigMap -text"} <= summary(manifests)
    assert one(manifests, "ConfigMap", "-object")["data"] == {"port": "8080"}


def test_common_labels_are_added_and_own_labels_replace_them() -> None:
    values: Values = {
        "commonLabels": {"team": "common", "cost": "1"},
        "podLabels": {"team": "pods", "app.kubernetes.io/name": "another"},
        "metrics": {"podMonitor": {"enabled": True, "labels": {"team": "monitor"}}},
    }
    manifests = render(values)
    deployment, monitor = one(manifests, "Deployment"), one(manifests, "PodMonitor")
    labels = [each["metadata"]["labels"] for each in (deployment, monitor)]
    labels.append(deployment["spec"]["template"]["metadata"]["labels"])
    assert [each["team"] for each in labels] == ["common", "monitor", "pods"]
    assert {each["cost"] for each in labels} == {"1"}
    assert {each["app.kubernetes.io/name"] for each in labels} == {"jobgroup-operator"}
    assert deployment["spec"]["selector"]["matchLabels"].keys().isdisjoint({"team", "cost"})


def test_a_strategy_replaces_that_of_the_chart() -> None:
    assert one(render(), "Deployment")["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    found = one(render({"strategy": {"type": "Recreate"}}), "Deployment")
    assert found["spec"]["strategy"] == {"type": "Recreate"}


def test_the_label_selector_reaches_the_operator_and_the_hook() -> None:
    for _, pod in pods(render()):
        assert "WATCH_LABEL_SELECTOR" not in env_of(pod)
    for _, pod in pods(render({"watch": {"labelSelector": "team=shop"}})):
        assert env_of(pod)["WATCH_LABEL_SELECTOR"] == "team=shop"


def test_each_threshold_changes_its_alert_alone() -> None:
    # Each is a default of another threshold, or begins with one.
    thresholds = {"activeSeconds": 3600, "compensatingSeconds": 100, "wakeupLagSeconds": 86400}
    rules: Values = {"enabled": True, "thresholds": thresholds}
    found = one(render({"metrics": {"rules": rules}}), "PrometheusRule")["spec"]
    file = yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    expected = {rule["alert"]: rule["expr"] for rule in file["groups"][0]["rules"]}
    stuck = expected["JobGroupStuck"].replace("> 3600", "> 100").replace("> 86400", "> 3600")
    expected["JobGroupStuck"] = stuck
    expected["JobGroupWakeupLag"] = expected["JobGroupWakeupLag"].replace("> 10", "> 86400")
    assert {rule["alert"]: rule["expr"] for rule in found["groups"][0]["rules"]} == expected
    assert complaints(yaml.safe_dump(found)) == []


def test_the_metadata_of_the_chart_names_its_origin_and_contains_its_icon() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    home = f"https://{API_GROUP}"
    assert (chart["home"], chart["sources"]) == (home, [f"{home}/{chart['name']}"])
    assert [each["url"] for each in chart["maintainers"]] == [home]
    assert chart["kubeVersion"] == ">=1.33.0-0"
    assert chart["annotations"]["artifacthub.io/license"] == "Apache-2.0"
    # A URL would need a host, also to show the chart without a network.
    kind, _, content = chart["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert b64decode(content).startswith(b'<svg xmlns="http://www.w3.org/2000/svg"')


def test_the_metadata_of_the_chart_lists_the_crds() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert yaml.safe_load(chart["annotations"]["artifacthub.io/crds"]) == [
        {
            "kind": crd["spec"]["names"]["kind"],
            "version": version["name"],
            "name": crd["metadata"]["name"],
            "displayName": crd["spec"]["names"]["kind"],
            "description": version["schema"]["openAPIV3Schema"]["description"],
        }
        for crd in (make() for make in CRDS.values())
        for version in crd["spec"]["versions"]
    ]
