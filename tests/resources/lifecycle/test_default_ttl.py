"""JOBGROUP_TTL_SECONDS: the time to live of JobGroups that have none of their own."""

from typing import Any

from testbed.support.resources import manifest
from testbed.support.sagas import job
from testbed.support.stages import Stage


def ended(stage: Stage, name: str, **spec: Any) -> None:
    """Apply a JobGroup that ends at once, because it is cancelled after its creation."""
    stage.resources.apply(manifest(name, job("pay", "nobody"), **spec))
    stage.resources.reaches(name, state="ACTIVE")
    stage.resources.patch(name, cancel=True)


def test_a_jobgroup_without_a_ttl_has_that_of_the_setting(stage: Stage) -> None:
    with stage.operator():
        ended(stage, "before")
        stage.resources.reaches("before", state="FAILED")
    stage.operator("limited", JOBGROUP_TTL_SECONDS="1")
    ended(stage, "own", ttlSecondsAfterFinished=3600)
    ended(stage, "order")
    # One that ended before the setting expires, too.
    stage.resources.goes("before")
    stage.resources.goes("order")
    stage.resources.reaches("own", state="FAILED")
