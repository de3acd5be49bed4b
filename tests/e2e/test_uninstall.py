"""The chart is uninstalled while sagas run: nothing is stuck, and a new one goes on with them."""

import pytest

from testbed import installation
from testbed.cluster import TestImages
from testbed.kubectl import PATIENCE
from tests.e2e.stage import NEVER, Stage


@pytest.mark.alone
def test_nothing_is_stuck_and_a_new_installation_goes_on(stage: Stage, images: TestImages) -> None:
    stage.has_workers()
    stage.begin_two_sagas()
    stage.saga("idle", stage.job("wait", delay=NEVER))
    stage.sees("idle", state="ACTIVE")

    installation.uninstall()

    assert stage.operator.pods() == set()
    sagas = stage.kubectl.json("jobgroups")["items"]
    assert [saga["metadata"]["name"] for saga in sagas] == ["bad", "good", "idle"]
    assert not any(saga["metadata"].get("finalizers") for saga in sagas)
    stage.kubectl("delete", "jobgroup", "idle", PATIENCE)

    stage.the_rest_is_run()  # while there is no operator
    installation.install(images.operator, images.redis)

    stage.two_sagas_end_well()
