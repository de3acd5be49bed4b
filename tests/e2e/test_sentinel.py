"""The operator on Redis behind Sentinel: the master ends while a saga is undone."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from testbed.cluster import installation
from testbed.cluster.kind import TestImages
from tests.e2e.stage import LATER, Stage

REDIS_PORT, SENTINEL_PORT = 6379, 26379
SERVICE = "shop"
NUMBER = 3
CONFIGURATION = """
protected-mode no
dir /data
sentinel monitor {service} {master} {port} 2
sentinel down-after-milliseconds {service} 2000
sentinel failover-timeout {service} 6000
"""
# Sentinel writes to its configuration, which a ConfigMap does not allow. The image of Redis has no
# shell, so that of the operator copies it.
COPY = "import shutil; shutil.copy('/given/sentinel.conf', '/data')"


class Sentinels:
    """Three servers of Redis and three sentinels, as pods without a controller."""

    def __init__(self, stage: Stage, images: TestImages) -> None:
        self._stage = stage
        self._images = images
        master = self._start("redis-0", REDIS_PORT, self._redis("--port", str(REDIS_PORT)))
        copies = self._redis("--replicaof", master, str(REDIS_PORT))
        for number in range(1, NUMBER):
            self._start(f"redis-{number}", REDIS_PORT, copies)
        text = CONFIGURATION.format(service=SERVICE, master=master, port=REDIS_PORT)
        named = {"metadata": {"name": "sentinels"}, "data": {"sentinel.conf": text}}
        stage.user.create({"apiVersion": "v1", "kind": "ConfigMap", **named})
        self.addresses = [
            f"{self._start(f'sentinel-{number}', SENTINEL_PORT, self._sentinel())}:{SENTINEL_PORT}"
            for number in range(NUMBER)
        ]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(self.addresses)}/{SERVICE}"

    def master(self) -> str:
        """Return the pod that the first sentinel names as the master; nothing if it is gone."""
        asked = ("-p", str(SENTINEL_PORT), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        address, *_ = self._call("sentinel-0", *asked).splitlines()
        pods = self._stage.user.find("Pod", field_selector=f"status.podIP={address}")
        return "".join(str(pod["metadata"]["name"]) for pod in pods)

    def lose(self, pod: str) -> None:
        """End the server in a pod at once, and delete the pod.

        A container runs for some seconds after its pod was deleted.
        """
        stopping = ("redis-cli", "SHUTDOWN", "NOSAVE", "NOW", "FORCE")
        self._stage.kubectl.attempt("exec", pod, "--", *stopping)
        self._stage.user.delete("Pod", pod, grace_period_seconds=0)

    def copies(self) -> int:
        """Return how many replicas have all data of the master."""
        said = self._call(self.master(), "INFO", "replication")
        return said.count("state=online")

    def trail(self) -> list[str]:
        """Return what the workers began and ended, in order."""
        return self._call(self.master(), "LRANGE", self._stage.trail_key, "0", "-1").splitlines()

    def _call(self, pod: str, *command: str) -> str:
        return self._stage.kubectl("exec", pod, "--", "redis-cli", *command)

    def _redis(self, *options: str) -> dict[str, Any]:
        command = ["redis-server", "--protected-mode", "no", *options]
        container = {"name": "redis", "image": self._images.redis, "command": command}
        # A master that starts again at once has no data, and its replicas would copy that.
        return {"containers": [container], "restartPolicy": "Never"}

    def _sentinel(self) -> dict[str, Any]:
        data = {"name": "data", "mountPath": "/data"}
        given = {"name": "given", "mountPath": "/given"}
        copying = {
            "name": "copy",
            "image": self._images.operator,
            "command": ["python3", "-c", COPY],
            "volumeMounts": [data, given],
            "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
        }
        container = {
            "name": "sentinel",
            "image": self._images.redis,
            "command": ["redis-server", "/data/sentinel.conf", "--sentinel"],
            "volumeMounts": [data],
        }
        volumes = [
            {"name": "data", "emptyDir": {}},
            {"name": "given", "configMap": {"name": "sentinels"}},
        ]
        return {"initContainers": [copying], "containers": [container], "volumes": volumes}

    def _start(self, name: str, port: int, spec: Mapping[str, Any]) -> str:
        """Run a pod; return its address when it answers."""
        (main,) = spec["containers"]
        probed = {**main, "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1}}
        pod = {"metadata": {"name": name}, "spec": {**spec, "containers": [probed]}}
        user = self._stage.user
        user.create({"apiVersion": "v1", "kind": "Pod", **pod})
        user.wait_for("Pod", name, is_ready)
        body = user.get("Pod", name)
        assert body, "the pod was ready"
        return str(body["status"]["podIP"])


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is ready."""
    found = (pod.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in found)


@pytest.fixture
def sentinels(stage: Stage, images: TestImages) -> Iterator[Sentinels]:
    """Install the operator for Redis behind Sentinel; restore the installation afterwards."""
    started = Sentinels(stage, images)
    addresses = {f"redis.addresses[{n}]": each for n, each in enumerate(started.addresses)}
    values = {"redis.bundled.enabled": "false", "redis.sentinel.master": SERVICE, **addresses}
    installation.install(images.operator, images.redis, **values)
    yield started
    stage.user.delete_all("JobGroup")
    stage.user.wait_gone("JobGroup")
    installation.install(images.operator, images.redis)


@pytest.mark.alone
def test_a_saga_is_undone_although_the_master_is_gone(stage: Stage, sentinels: Sentinels) -> None:
    stage.redis_url = sentinels.url
    stage.has_workers()
    crash = stage.job("crash", lane=LATER, fails="no runway")
    undos = {"rise": {"after": ["go"]}, "turn": {"after": ["go"]}}
    stage.saga("bad", stage.job("rise"), stage.job("turn"), crash, undos=undos)
    stage.sees("bad", state="ACTIVE", progress="2/3")
    stage.the_rest_is_run()
    stage.sees("bad", state="COMPENSATING")
    assert sentinels.copies() == NUMBER - 1
    killed = sentinels.master()

    sentinels.lose(killed)

    stage.saga("next", stage.job("go"))
    stage.sees("next", state="COMPLETED")
    stage.sees("bad", state="FAILED", undone="2/2")
    assert sentinels.master() not in ("", killed)
    ended = [line for line in sentinels.trail() if line.startswith("ended")]
    assert sorted(ended) == [
        f"ended {job}" for job in ("go", "rise", "turn", "undo-rise", "undo-turn")
    ]
