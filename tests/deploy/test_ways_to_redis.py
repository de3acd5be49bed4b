"""Each way to configure Redis in the chart."""

import pytest

from testbed.support.chart import NAMESPACE, REDIS, Values, render
from tests.deploy.rendered import (
    BUNDLED,
    container,
    env_of,
    one,
)

FOLDER = "/etc/jobgroup/redis"
SECRET = {"name": "redis", "urlKey": "uri"}


@pytest.mark.parametrize(
    ("redis", "env", "files"),
    [
        (REDIS["redis"], {"REDIS_URL": "redis://redis:6379/0"}, {}),
        (
            {"bundled": {"enabled": True}},
            {"REDIS_URL": f"redis://jobgroup-operator-redis.{NAMESPACE}:6379/0"},
            {},
        ),
        (
            {"existingSecret": SECRET},
            {"REDIS_URL_FILE": f"{FOLDER}/url"},
            {"url": ("redis", "uri")},
        ),
        (
            {
                "existingSecret": {**SECRET, "usernameKey": "user", "passwordKey": "pass"},
                "tls": {"caSecret": "tls", "caKey": "root.pem"},
            },
            {
                "REDIS_URL_FILE": f"{FOLDER}/url",
                "REDIS_USERNAME_FILE": f"{FOLDER}/username",
                "REDIS_PASSWORD_FILE": f"{FOLDER}/password",
                "REDIS_CA_FILE": f"{FOLDER}/ca.crt",
            },
            {
                "url": ("redis", "uri"),
                "username": ("redis", "user"),
                "password": ("redis", "pass"),
                "ca.crt": ("tls", "root.pem"),
            },
        ),
        (
            {"url": "rediss://r:1", "existingSecret": {"name": "redis", "passwordKey": "pass"}},
            {"REDIS_URL": "rediss://r:1", "REDIS_PASSWORD_FILE": f"{FOLDER}/password"},
            {"password": ("redis", "pass")},
        ),
        (
            {"url": "rediss://r:1", "tls": {"caSecret": "tls"}},
            {"REDIS_URL": "rediss://r:1", "REDIS_CA_FILE": f"{FOLDER}/ca.crt"},
            {"ca.crt": ("tls", "ca.crt")},
        ),
    ],
    ids=str,
)
def test_each_way_to_redis(
    redis: Values, env: dict[str, str], files: dict[str, tuple[str, str]]
) -> None:
    manifests = render({"redis": redis}, redis={})
    for kind, suffix in (("Deployment", ""), ("Job", "-uninstall")):
        pod = one(manifests, kind, suffix)["spec"]["template"]["spec"]
        assert {name: value for name, value in env_of(pod).items() if "REDIS" in name} == env
        found = {
            item["path"]: (source["secret"]["name"], item["key"])
            for volume in pod.get("volumes", ())
            for source in volume["projected"]["sources"]
            for item in source["secret"]["items"]
        }
        assert found == files
        mounts = [each["mountPath"] for each in container(pod).get("volumeMounts", ())]
        assert mounts == ([FOLDER] if files else [])


def test_the_bundled_redis_persists_its_data() -> None:
    redis = one(render(BUNDLED, redis={}), "StatefulSet", "-redis")["spec"]
    command = container(redis["template"]["spec"])["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    (claim,) = redis["volumeClaimTemplates"]
    (mount,) = container(redis["template"]["spec"])["volumeMounts"]
    assert mount == {"name": claim["metadata"]["name"], "mountPath": "/data"}
    assert claim["spec"]["resources"]["requests"] == {"storage": "1Gi"}
