"""A WorkerPool during outages of Redis and of the operator."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testbed.servers.apiserver import ApiServer
from testbed.servers.operator import OperatorProcess
from testbed.support.resources import until
from testbed.support.stages import Stage
from testbed.support.workloads import Workloads, pool, workload

JUMPING = Path(__file__).with_name("jumping_clock.py")


@dataclass
class Ground:
    """A stage with workloads, and an operator that can be stopped and started."""

    stage: Stage
    workloads: Workloads = field(init=False)
    operator: OperatorProcess = field(init=False)

    def __post_init__(self) -> None:
        self.redis = self.stage.redis
        self.workloads = Workloads(self.stage.resources)
        self.start()

    def start(self) -> None:
        self.operator = self.stage.operator()

    def kill(self) -> None:
        self.operator.server.kill()
        self.stage.free_lease()

    def jump(self, folder: Path) -> Path:
        """Start again with a clock that is ahead by the seconds in the returned file."""
        ahead = folder / "seconds-ahead"
        ahead.write_text("0")
        self.operator.server.stop()
        self.operator = self.stage.operator(script=JUMPING, SECONDS_AHEAD=str(ahead))
        return ahead

    async def add(self, queue: str) -> None:
        client = await self.stage.client()
        await client.add(queue, "waits")


@pytest.fixture
async def ground(quiet_api: ApiServer, tmp_path: Path) -> AsyncIterator[Ground]:
    async with Stage(tmp_path, quiet_api, persistent=True) as stage:
        yield Ground(stage)


async def test_a_pool_keeps_its_replicas_while_redis_is_down(ground: Ground) -> None:
    workloads, queue = ground.workloads, "payments:compensation"
    await ground.add(queue)
    workloads.apply(workload("undoers"), pool("undoers", queue, cooldownSeconds=1))
    workloads.scales_to("undoers", 1)
    ground.redis.kill()
    said = workloads.says("undoers", "Ready", "False", "RedisUnavailable")
    assert said.startswith("the workload is left as it is: ")
    workloads.says("undoers", "ScalingActive", "False", "RedisUnavailable")
    # A pool created meanwhile reports it as well, and does not scale.
    workloads.apply(workload("late", 3), pool("late", "late", cooldownSeconds=0))
    workloads.says("late", "Ready", "False", "RedisUnavailable")
    assert (workloads.changes("undoers"), workloads.changes("late")) == (1, 0)

    ground.redis.start_again()
    workloads.says("undoers", "Ready", "True", "Counting")
    workloads.scales_to("late", 0)
    ground.stage.store.delete(f"bull:{queue}:wait")
    await ground.add("late")
    workloads.scales_to("late", 1)


async def test_an_error_of_redis_is_not_reported_as_unavailable(ground: Ground) -> None:
    workloads, store = ground.workloads, ground.stage.store
    workloads.apply(workload("undoers", 2), pool("undoers", "quiet", cooldownSeconds=3600))
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    store.acl_setuser("default", enabled=True, commands=["-xread", "-evalsha"])
    said = workloads.says("undoers", "Ready", "False", "RedisError")
    assert "permission" in said
    store.acl_setuser("default", enabled=True, commands=["+xread", "+evalsha"])
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    assert workloads.changes("undoers") == 0


async def test_a_clock_that_jumps_ahead_does_not_end_a_cooldown(
    ground: Ground, tmp_path: Path
) -> None:
    workloads = ground.workloads
    clock = ground.jump(tmp_path)
    await ground.add("work")
    workloads.apply(workload("undoers", 2), pool("undoers", "work", cooldownSeconds=600))
    workloads.explains("undoers", "cooling down from 2 to 1")
    clock.write_text("86400")
    # So that the pool is reconciled with the new clock.
    await ground.add("work")
    until(lambda: workloads.status("undoers")["backlog"] == 2, lambda: "the job is not seen")
    assert workloads.changes("undoers") == 0


async def test_a_clock_that_jumps_back_does_not_prolong_a_cooldown(
    ground: Ground, tmp_path: Path
) -> None:
    workloads = ground.workloads
    clock = ground.jump(tmp_path)
    workloads.apply(workload("undoers", 2), pool("undoers", "quiet", cooldownSeconds=5))
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    clock.write_text("-86400")
    workloads.scales_to("undoers", 0)


@pytest.mark.parametrize("seconds", [-86400, 86400])
async def test_a_wrong_clock_does_not_change_when_a_delayed_job_counts(
    ground: Ground, tmp_path: Path, seconds: int
) -> None:
    workloads = ground.workloads
    ground.jump(tmp_path).write_text(str(seconds))
    client = await ground.stage.client()
    await client.add("later", "retry", delay=15_000)
    workloads.apply(workload("undoers", 1), pool("undoers", "later", cooldownSeconds=1))
    workloads.scales_to("undoers", 0)
    workloads.scales_to("undoers", 1)
    assert workloads.status("undoers")["jobs"]["delayed"] == 1


async def test_an_operator_that_starts_in_the_cooldown_finishes_it(ground: Ground) -> None:
    workloads = ground.workloads
    workloads.apply(workload("undoers", 2), pool("undoers", "quiet", cooldownSeconds=5))
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    ground.kill()
    changed = workloads.changes("undoers")
    ground.start()
    workloads.scales_to("undoers", 0)
    assert changed == 0
    assert workloads.changes("undoers") == 1


async def test_jobs_added_without_an_operator_are_counted_by_the_next(ground: Ground) -> None:
    workloads = ground.workloads
    workloads.apply(workload("undoers"), pool("undoers", "work"))
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    ground.kill()
    await ground.add("work")
    ground.start()
    workloads.scales_to("undoers", 1)
    workloads.last_scale("undoers")


async def test_an_idle_pool_is_not_written(ground: Ground) -> None:
    workloads = ground.workloads
    workloads.apply(workload("undoers"), pool("undoers", "quiet"))
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    version = workloads.get("WorkerPool", "undoers")["metadata"]["resourceVersion"]
    ground.kill()
    ground.start()
    workloads.a_cooldown_passes()
    assert workloads.get("WorkerPool", "undoers")["metadata"]["resourceVersion"] == version
