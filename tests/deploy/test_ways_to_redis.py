"""Each way to configure Redis in the chart."""

import pytest

from jobgroup.store.settings import read_redis_settings
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
        (
            {"addresses": ["r:1"], "database": 2},
            {"REDIS_URL": "redis://r:1/2"},
            {},
        ),
        (
            {
                "addresses": ["s1:26379", "[::2]:26379"],
                "sentinel": {
                    "master": "mymaster",
                    "tls": False,
                    "existingSecret": {"name": "s", "usernameKey": "u", "passwordKey": "p"},
                },
                "existingSecret": {"name": "redis", "passwordKey": "pass"},
                "tls": {"enabled": True, "caSecret": "tls", "certSecret": "client"},
            },
            {
                "REDIS_URL": "rediss+sentinel://s1:26379,[::2]:26379/mymaster/0?sentinel_tls=false",
                "REDIS_PASSWORD_FILE": f"{FOLDER}/password",
                "REDIS_SENTINEL_USERNAME_FILE": f"{FOLDER}/sentinel-username",
                "REDIS_SENTINEL_PASSWORD_FILE": f"{FOLDER}/sentinel-password",
                "REDIS_CA_FILE": f"{FOLDER}/ca.crt",
                "REDIS_CERT_FILE": f"{FOLDER}/tls.crt",
                "REDIS_KEY_FILE": f"{FOLDER}/tls.key",
            },
            {
                "password": ("redis", "pass"),
                "sentinel-username": ("s", "u"),
                "sentinel-password": ("s", "p"),
                "ca.crt": ("tls", "ca.crt"),
                "tls.crt": ("client", "tls.crt"),
                "tls.key": ("client", "tls.key"),
            },
        ),
        (
            {"addresses": ["s:26379"], "sentinel": {"master": "mymaster"}},
            {"REDIS_URL": "redis+sentinel://s:26379/mymaster/0"},
            {},
        ),
        (
            {"addresses": ["n1:1", "n2:2"], "cluster": True, "prefix": "{bull}"},
            {"REDIS_URL": "redis+cluster://n1:1,n2:2"},
            {},
        ),
        (
            {"addresses": ["n:1"], "cluster": True, "prefix": "{bull}", "tls": {"enabled": True}},
            {"REDIS_URL": "rediss+cluster://n:1"},
            {},
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
        settings = env_of(pod)
        assert {name: value for name, value in settings.items() if "REDIS" in name} == env
        if url := env.get("REDIS_URL"):
            read_redis_settings({"REDIS_URL": url, "BULLMQ_PREFIX": settings["BULLMQ_PREFIX"]})
        found = {
            item["path"]: (source["secret"]["name"], item["key"])
            for volume in pod.get("volumes", ())
            for source in volume["projected"]["sources"]
            for item in source["secret"]["items"]
        }
        assert found == files
        mounts = [each["mountPath"] for each in container(pod).get("volumeMounts", ())]
        assert mounts == ([FOLDER] if files else [])


def test_a_network_policy_allows_the_ports_of_the_addresses() -> None:
    redis = {"addresses": ["s1:26379", "s2:26380"], "sentinel": {"master": "mymaster"}}
    policy = {"enabled": True, "apiServerPorts": [443], "redisPorts": [6379, 26379]}
    manifests = render({"redis": redis, "networkPolicy": policy}, redis={})
    (_, rule) = one(manifests, "NetworkPolicy")["spec"]["egress"]
    assert [each["port"] for each in rule["ports"]] == [443, 6379, 26379, 26380]


def test_the_bundled_redis_persists_its_data() -> None:
    redis = one(render(BUNDLED, redis={}), "StatefulSet", "-redis")["spec"]
    command = container(redis["template"]["spec"])["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    (claim,) = redis["volumeClaimTemplates"]
    (mount,) = container(redis["template"]["spec"])["volumeMounts"]
    assert mount == {"name": claim["metadata"]["name"], "mountPath": "/data"}
    assert claim["spec"]["resources"]["requests"] == {"storage": "1Gi"}
