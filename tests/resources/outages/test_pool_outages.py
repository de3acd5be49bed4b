"""A WorkerPool through a Redis that is away, and through operators that come and go."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testbed.apiserver import ApiServer
from testbed.operators import OperatorProcess
from testbed.resources import until
from testbed.stages import Stage
from testbed.workloads import Workloads, pool, workload

JUMPING = Path(__file__).with_name("jumping_clock.py")


@dataclass
class Ground:
    """A stage with workloads, and an operator that may be ended and begun again."""

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
        """Begin anew with a clock that is ahead by what the returned file says."""
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


async def test_while_redis_is_away_a_pool_holds(ground: Ground) -> None:
    workloads, queue = ground.workloads, "payments:compensation"
    await ground.add(queue)
    workloads.apply(workload("undoers"), pool("undoers", queue, cooldownSeconds=1))
    workloads.scales_to("undoers", 1)
    ground.redis.kill()
    said = workloads.says("undoers", "Ready", "False", "RedisUnavailable")
    assert said.startswith("the workload is left as it is: ")
    workloads.says("undoers", "ScalingActive", "False", "RedisUnavailable")
    # One that comes meanwhile says so too, and its workload is left alone.
    workloads.apply(workload("late", 3), pool("late", "late", cooldownSeconds=0))
    workloads.says("late", "Ready", "False", "RedisUnavailable")
    assert (workloads.changes("undoers"), workloads.changes("late")) == (1, 0)

    ground.redis.start_again()
    workloads.says("undoers", "Ready", "True", "Counting")
    workloads.scales_to("late", 0)
    ground.stage.store.delete(f"bull:{queue}:wait")
    await ground.add("late")
    workloads.scales_to("late", 1)


async def test_a_redis_that_refuses_is_not_called_away(ground: Ground) -> None:
    workloads, store = ground.workloads, ground.stage.store
    workloads.apply(workload("undoers", 2), pool("undoers", "quiet", cooldownSeconds=3600))
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    store.acl_setuser("default", enabled=True, commands=["-xread", "-evalsha"])
    said = workloads.says("undoers", "Ready", "False", "RedisError")
    assert "permission" in said
    store.acl_setuser("default", enabled=True, commands=["+xread", "+evalsha"])
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    assert workloads.changes("undoers") == 0


async def test_a_clock_that_jumps_ahead_ends_no_cooldown(ground: Ground, tmp_path: Path) -> None:
    workloads = ground.workloads
    clock = ground.jump(tmp_path)
    await ground.add("work")
    workloads.apply(workload("undoers", 2), pool("undoers", "work", cooldownSeconds=600))
    workloads.explains("undoers", "cooling down from 2 to 1")
    clock.write_text("86400")
    # So that the pool is looked at by the new clock.
    await ground.add("work")
    until(lambda: workloads.status("undoers")["backlog"] == 2, lambda: "the job is not seen")
    assert workloads.changes("undoers") == 0


async def test_a_clock_that_jumps_back_draws_out_no_cooldown(
    ground: Ground, tmp_path: Path
) -> None:
    workloads = ground.workloads
    clock = ground.jump(tmp_path)
    workloads.apply(workload("undoers", 2), pool("undoers", "quiet", cooldownSeconds=5))
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    clock.write_text("-86400")
    workloads.scales_to("undoers", 0)


@pytest.mark.parametrize("seconds", [-86400, 86400])
async def test_a_clock_that_is_wrong_wakes_nobody_too_late_or_too_early(
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


async def test_jobs_that_came_without_an_operator_are_seen_by_the_next(ground: Ground) -> None:
    workloads = ground.workloads
    workloads.apply(workload("undoers"), pool("undoers", "work"))
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    ground.kill()
    await ground.add("work")
    ground.start()
    workloads.scales_to("undoers", 1)
    until(lambda: "lastScale" in workloads.status("undoers"), lambda: "nothing is said of it")


async def test_a_pool_at_rest_is_not_written(ground: Ground) -> None:
    workloads = ground.workloads
    workloads.apply(workload("undoers"), pool("undoers", "quiet"))
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    version = workloads.get("workerpool", "undoers")["metadata"]["resourceVersion"]
    ground.kill()
    ground.start()
    workloads.a_cooldown_passes()
    assert workloads.get("workerpool", "undoers")["metadata"]["resourceVersion"] == version
