"""Fixtures of the end-to-end stories.

images   the images that `make e2e` built, or that the environment names
stage    a namespace of the story's own, with workers and sagas; saves diagnostics if a story fails
"""

import os
import re
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from testbed.cluster import diagnostics
from testbed.cluster.installation import NAMESPACE, STORY_LABEL
from testbed.cluster.kind import IMAGE_VARIABLES, TestImages, is_kept
from testbed.cluster.kubectl import Kubectl
from testbed.support.resources import namespace_named
from testbed.support.user import User
from tests.e2e.stage import PATIENCE_SECONDS, Stage

failed = pytest.StashKey[bool]()
# This story begins first, beside all others.
LONGEST = "test_readme.py"
# These stories remove the operator that the others need, so they run last, in this order.
LAST = ("test_uninstall.py", "test_rbac.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the time limit for slow machines, and order the stories."""
    for item in items:
        item.add_marker(pytest.mark.timeout(900))
    order = {LONGEST: -1, **{name: place for place, name in enumerate(LAST, 1)}}
    items.sort(key=lambda item: order.get(item.path.name, 0))


@pytest.fixture(scope="session")
def images() -> TestImages:
    """Return the images that `make e2e` passes in the environment."""
    names = ("KUBECONFIG", "E2E_KUBECTL", *IMAGE_VARIABLES)
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not set: the end-to-end tests run through make e2e")
    return TestImages(**{field: os.environ[name] for name, field in IMAGE_VARIABLES.items()})


@pytest.fixture
def stage(images: TestImages, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Create a namespace for a story, and delete it afterwards."""
    name = re.sub(r"[^a-z0-9]+", "-", request.path.stem.removeprefix("test_"))
    kubectl = Kubectl(os.environ["E2E_KUBECTL"], f"{name}-{uuid.uuid4().hex[:6]}")
    kubeconfig = Path(os.environ["KUBECONFIG"])
    user = User.connect(kubeconfig, kubectl.namespace, PATIENCE_SECONDS)
    namespace = namespace_named(user.namespace)
    namespace["metadata"]["labels"] = {STORY_LABEL: ""}
    user.create(namespace)
    try:
        yield Stage(user, kubectl, images)
    finally:
        broken = request.node.stash.get(failed, False)
        if broken:
            test = request.node.name
            folder = diagnostics.save(test, kubectl, kubectl.within(NAMESPACE))
            print(f"Logs and events of {test} are in {folder}")
        if not (broken and is_kept()):
            user.delete("Namespace", user.namespace)
        user.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record for the teardown of the fixtures that the test failed."""
    report = yield
    if report.failed:
        item.stash[failed] = True
    return report
