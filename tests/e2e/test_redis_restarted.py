"""Redis goes away in the middle of two sagas, and is back with what it had on its volume."""

import pytest

from testbed.installation import REDIS_POD
from testbed.kubectl import PATIENCE
from tests.e2e.stage import Stage


@pytest.mark.alone
def test_sagas_go_on_when_redis_is_back(stage: Stage) -> None:
    stage.has_workers()
    stage.begin_two_sagas()

    stage.operator.kubectl("delete", "pod", REDIS_POD, PATIENCE)
    redis = REDIS_POD.removesuffix("-0")
    stage.operator.kubectl("rollout", "status", f"statefulset/{redis}", PATIENCE)

    stage.the_rest_is_run()
    stage.two_sagas_end_well()
