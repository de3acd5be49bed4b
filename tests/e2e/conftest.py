"""What a story needs: a cluster with the operator in it, a namespace of its own, its last words.

stage    a namespace with workers and sagas, and the way to the operator's
"""

import os
import re
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from testbed.cache import cache_dir
from testbed.cluster import IMAGE_VARIABLES, TestImages
from testbed.installation import NAMESPACE
from tests.e2e.kubectl import Kubectl, is_kept
from tests.e2e.stage import Stage

failed = pytest.StashKey[bool]()
KINDS = "jobgroups,workerpools,deployments,statefulsets,pods,services,leases"
# These take the operator away from the others, so they come last, and in this order.
LAST = ("test_uninstall.py", "test_rbac.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow machines more time than the project's usual limit, and put the last ones last."""
    for item in items:
        item.add_marker(pytest.mark.timeout(900))
    items.sort(key=lambda item: LAST.index(item.path.name) + 1 if item.path.name in LAST else 0)


@pytest.fixture(scope="session")
def images() -> TestImages:
    """Return the images that `make e2e` made or was told of."""
    names = ("KUBECONFIG", "E2E_KUBECTL", *IMAGE_VARIABLES)
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not set: the end-to-end tests run through make e2e")
    return TestImages(**{field: os.environ[name] for name, field in IMAGE_VARIABLES.items()})


@pytest.fixture
def stage(images: TestImages, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Give a story a fresh namespace, which goes away with it."""
    name = re.sub(r"[^a-z0-9]+", "-", request.path.stem.removeprefix("test_"))
    kubectl = Kubectl(os.environ["E2E_KUBECTL"], f"{name}-{uuid.uuid4().hex[:6]}")
    kubectl("create", "namespace", kubectl.namespace)
    try:
        yield Stage(kubectl, images)
    finally:
        broken = request.node.stash.get(failed, False)
        if broken:
            save_last_words(kubectl, request.node.name)
        if not (broken and is_kept()):
            kubectl("delete", "namespace", kubectl.namespace, "--wait=false", "--ignore-not-found")


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
    """Save what one would ask first of the story's namespace and of the operator's."""
    folder = Path(os.environ.get("E2E_FAILURES") or cache_dir() / "e2e-failures") / test
    for each in (kubectl, kubectl.elsewhere(NAMESPACE)):
        _save_namespace(each, folder / each.namespace)
    print(f"Logs and events of {test} are in {folder}")


def _save_namespace(kubectl: Kubectl, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)

    def save(name: str, *arguments: str) -> None:
        done = kubectl.attempt(*arguments)
        (folder / name).write_text(done.stdout + done.stderr)

    save("events.txt", "get", "events", "--sort-by=.metadata.creationTimestamp")
    save("objects.yaml", "get", KINDS, "--output=yaml")
    for pod in kubectl.attempt("get", "pods", "--output=name").stdout.split():
        name = pod.removeprefix("pod/")
        save(f"{name}.log", "logs", name, "--all-containers", "--prefix")
        save(f"{name}.previous.log", "logs", name, "--all-containers", "--prefix", "--previous")
