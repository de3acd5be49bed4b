"""A WorkerPool through a Redis that is away, and through operators that come and go."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from testbed.apiserver import ApiServer
from testbed.operators import OperatorProcess, start_operator
from testbed.redis_server import RedisServer
from testbed.resources import CRDS, Resources, until
from testbed.stock import StockClient
from testbed.workloads import Workloads, pool, workload


@dataclass
class Ground:
    """Servers of one's own, and an operator that may be ended and begun again."""

    folder: Path
    redis: RedisServer
    workloads: Workloads
    operator: OperatorProcess | None = None

    def start(self) -> None:
        api = self.workloads.resources.api
        self.operator = start_operator(self.folder, api.operator, self.redis.url, "bull")

    def kill(self) -> None:
        assert self.operator is not None, "started before"
        self.operator.server.kill()

    async def add(self, queue: str) -> None:
        async with await StockClient.start("bullmq6", self.redis.url, "bull") as client:
            await client.add(queue, "waits")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with ApiServer(tmp_path) as api, RedisServer(tmp_path, persistent=True) as redis:
        api.kubectl("apply", "-f", str(CRDS))
        api.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
        ground = Ground(tmp_path, redis, Workloads(Resources(api, "default")))
        ground.start()
        try:
            yield ground
        finally:
            assert ground.operator is not None, "just started"
            ground.operator.server.stop()


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
    with Redis.from_url(ground.redis.url) as client:
        client.delete(f"bull:{queue}:wait")
    await ground.add("late")
    workloads.scales_to("late", 1)


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
