"""The leader is killed in the middle of two sagas; the other replica continues them."""

import pytest

from testbed.support.chart import RELEASE
from testbed.support.workloads import is_rolled_out
from tests.e2e.stage import Stage


@pytest.mark.alone
def test_another_replica_continues(stage: Stage) -> None:
    stage.has_workers()
    stage.begin_two_sagas()
    killed = stage.operator.leader()

    stage.operator.user.delete("Pod", killed, grace_period_seconds=0)

    stage.the_rest_is_run()  # while there is no leader
    stage.two_sagas_end_well()
    assert stage.operator.leader() != killed
    stage.operator.user.wait_for("Deployment", RELEASE, is_rolled_out)
