"""Redis restarts in the middle of two sagas, with the data of its volume."""

import pytest

from testbed.cluster.installation import REDIS_POD
from testbed.support.workloads import is_rolled_out
from tests.e2e.stage import Stage


@pytest.mark.alone
def test_sagas_continue_after_a_restart_of_redis(stage: Stage) -> None:
    stage.has_workers()
    stage.begin_two_sagas()

    user = stage.operator.user
    user.delete("Pod", REDIS_POD)
    user.wait_gone("Pod", field_selector=f"metadata.name={REDIS_POD}")
    user.wait_for("StatefulSet", REDIS_POD.removesuffix("-0"), is_rolled_out)

    stage.the_rest_is_run()
    stage.two_sagas_end_well()
