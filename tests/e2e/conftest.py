"""What a story needs: a cluster with the operator in it, a namespace of its own, its last words.

stage    a namespace with workers and sagas, and the way to the operator's
"""

import os
import re
import uuid
from collections.abc import Generator, Iterator

import pytest

from testbed import last_words
from testbed.cluster import IMAGE_VARIABLES, TestImages, is_kept
from testbed.installation import NAMESPACE
from testbed.kubectl import Kubectl
from tests.e2e.stage import Stage

failed = pytest.StashKey[bool]()
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
            test = request.node.name
            folder = last_words.save(test, kubectl, kubectl.elsewhere(NAMESPACE))
            print(f"Logs and events of {test} are in {folder}")
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
