"""The chart is upgraded in the middle of two sagas: the new pods continue them."""

import pytest

from testbed.cluster import installation
from testbed.cluster.kind import TestImages
from tests.e2e.stage import Stage


@pytest.mark.alone
def test_sagas_continue_with_the_new_pods(stage: Stage, images: TestImages) -> None:
    stage.has_workers()
    before = stage.operator.pods()
    stage.begin_two_sagas()

    installation.install(images.operator, images.redis, workers="8")

    stage.the_rest_is_run()
    stage.two_sagas_end_well()
    assert not before & stage.operator.pods()
