"""The chart is uninstalled while sagas run: nothing is stuck, and a new release continues them."""

import pytest

from jobgroup.resource.kinds import JOBGROUP
from testbed.cluster import installation
from testbed.cluster.kind import TestImages
from tests.e2e.stage import NEVER, Stage


@pytest.mark.alone
def test_nothing_is_stuck_and_a_new_release_continues(stage: Stage, images: TestImages) -> None:
    stage.has_workers()
    stage.begin_two_sagas()
    stage.saga("idle", stage.job("wait", delay=NEVER))
    stage.sees("idle", state="ACTIVE")

    installation.uninstall()

    assert stage.operator.pods() == set()
    sagas = stage.user.find(JOBGROUP.name)
    assert [saga["metadata"]["name"] for saga in sagas] == ["bad", "good", "idle"]
    assert not any(saga["metadata"].get("finalizers") for saga in sagas)
    stage.user.delete(JOBGROUP.name, "idle")
    stage.user.wait_gone(JOBGROUP.name, field_selector="metadata.name=idle")

    stage.the_rest_is_run()  # while there is no operator
    installation.install(images.operator, images.redis)

    stage.two_sagas_end_well()
