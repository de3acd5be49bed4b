"""The replica that works is killed in the middle of two sagas; the other one goes on with them."""

import pytest

from tests.e2e.stage import Stage


@pytest.mark.alone
def test_another_replica_goes_on(stage: Stage) -> None:
    stage.has_workers()
    stage.begin_two_sagas()
    killed = stage.operator.leader()

    stage.operator.kubectl("delete", "pod", killed, "--grace-period=0", "--force")

    stage.the_rest_is_run()  # while nobody leads
    stage.two_sagas_end_well()
    assert stage.operator.leader() != killed
    stage.operator.kubectl("rollout", "status", "deployment/jobgroup-operator", "--timeout=180s")
