"""The content of the operator's image: Python, the operator, no shell and no package manager."""

import json
from typing import Any

import pytest

from jobgroup import __version__
from testbed.cluster.kind import TestImages
from tests.e2e.stage import Stage

LOOK = """
import importlib.util, json, os, sys
files = {}
for folder, _, names in os.walk("/"):
    if folder.split("/")[1] in ("proc", "sys", "dev"):
        continue
    for name in names:
        path = os.path.join(folder, name)
        files[path] = [os.lstat(path).st_size, os.access(path, os.W_OK)]
try:
    open("/app/written", "w")
except OSError as error:
    refusal = error.strerror
modules = "pip ensurepip setuptools pytest testbed tests bullmq kopf redis".split()
print(json.dumps({
    "user": [os.getuid(), os.getgid()],
    "files": files,
    "refusal": refusal,
    "modules": [name for name in modules if importlib.util.find_spec(name)],
}))
"""
MEGABYTES = 90


def run(stage: Stage, name: str, **container: Any) -> str:
    """Run a pod of one container to its end, and return what the container printed."""
    rights = {"readOnlyRootFilesystem": True, "runAsNonRoot": True}
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "one", "securityContext": rights, **container}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    stage.user.create(pod)
    stage.user.wait_for("Pod", name, lambda body: body["status"].get("phase") == "Succeeded")
    return stage.kubectl("logs", name)


@pytest.fixture
def inside(stage: Stage, images: TestImages) -> dict[str, Any]:
    """Return what a Python process in the image sees."""
    command = ["python3", "-c", LOOK]
    return dict(json.loads(run(stage, "look", image=images.operator, command=command)))


def test_it_holds_what_it_needs_and_no_more(inside: dict[str, Any]) -> None:
    assert inside["user"] == [65532, 65532]
    assert inside["refusal"] == "Read-only file system"
    assert inside["modules"] == ["kopf", "redis"]
    names = {path.rpartition("/")[2] for path in inside["files"]}
    assert not names & {"sh", "bash", "pip", "pip3", "gcc", "cc", "ld", "apt", "dpkg"}
    assert {"main.py", "create_groups.lua", "ca-certificates.crt"} <= names
    own = [path for path in inside["files"] if path.startswith("/app/operator/")]
    assert not [path for path in own if "test" in path]
    mounted = ("/etc/", "/run/", "/var/run/")  # what Kubernetes adds
    writable = [path for path, (_, may) in inside["files"].items() if may]
    assert [path for path in writable if not path.startswith(mounted)] == []


def test_it_is_small(inside: dict[str, Any]) -> None:
    assert sum(size for size, _ in inside["files"].values()) < MEGABYTES * 1e6


def test_it_prints_its_version(stage: Stage, images: TestImages) -> None:
    said = run(stage, "version", image=images.operator, args=["--version"])
    assert said == f"jobgroup-operator {__version__}\n"
