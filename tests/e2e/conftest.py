"""What an end-to-end test needs: kubectl, a namespace of its own, and its pods' last words."""

import json
import os
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.cache import cache_dir

DEADLINE_SECONDS = 180
failed = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Kubectl:
    """Run kubectl in one namespace of the cluster under test."""

    program: str
    namespace: str

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        done = self.attempt(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    def attempt(
        self, *arguments: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [self.program, "--namespace", self.namespace, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)

    def apply(self, *objects: dict[str, Any]) -> None:
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self("apply", "--filename", "-", stdin=manifest)

    def wait_for_rollout(self, deployment: str) -> None:
        timeout = f"--timeout={DEADLINE_SECONDS}s"
        self("rollout", "status", f"deployment/{deployment}", timeout)

    def pods(self, label: str) -> list[str]:
        return self("get", "pods", "--selector", label, "--output", "name").split()


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Return what `make e2e` tells the tests about the cluster."""
    names = ("KUBECONFIG", "E2E_KUBECTL", "E2E_IMAGE", "E2E_REDIS_IMAGE")
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not set: the end-to-end tests run through make e2e")
    return {name: os.environ[name] for name in names}


@pytest.fixture
def operator_image(environment: dict[str, str]) -> str:
    return environment["E2E_IMAGE"]


@pytest.fixture
def redis_image(environment: dict[str, str]) -> str:
    return environment["E2E_REDIS_IMAGE"]


@pytest.fixture
def kubectl(environment: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """Give kubectl in a fresh namespace, which goes away with the test."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    kubectl = Kubectl(environment["E2E_KUBECTL"], f"{name}-{uuid.uuid4().hex[:6]}")
    kubectl("create", "namespace", kubectl.namespace)
    try:
        yield kubectl
    finally:
        broken = request.node.stash.get(failed, False)
        if broken:
            save_last_words(kubectl, request.node.name)
        kept = os.environ.get("KEEP", "0") not in ("", "0")
        if not (broken and kept):
            kubectl("delete", "namespace", kubectl.namespace, "--wait=false")


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], Any]:
    """Give a function that repeats an assertion until it holds or the deadline passes."""

    def repeat(attempt: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                return attempt()
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.25)

    return repeat


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember for the fixtures' teardown that the test failed."""
    report = yield
    if report.failed:
        item.stash[failed] = True
    return report


def save_last_words(kubectl: Kubectl, test: str) -> None:
    """Save what one would ask of the namespace first, before it is deleted."""
    folder = Path(os.environ.get("E2E_FAILURES") or cache_dir() / "e2e-failures") / test
    folder.mkdir(parents=True, exist_ok=True)

    def save(name: str, *arguments: str) -> None:
        done = kubectl.attempt(*arguments)
        (folder / name).write_text(done.stdout + done.stderr)

    save("events.txt", "get", "events", "--sort-by=.metadata.creationTimestamp")
    save("objects.yaml", "get", "pods,deployments,services", "--output=yaml")
    for pod in kubectl.attempt("get", "pods", "--output=name").stdout.split():
        name = pod.removeprefix("pod/")
        save(f"{name}.log", "logs", name, "--all-containers", "--prefix")
        save(f"{name}.previous.log", "logs", name, "--all-containers", "--prefix", "--previous")
    print(f"Logs and events of {test} are in {folder}")
