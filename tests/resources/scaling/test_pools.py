"""A WorkerPool scales up when jobs appear, and down only when its queue is calm."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from testbed.servers.stock import StockClient, fails_for_good, hangs
from testbed.support.resources import Resources, manifest
from testbed.support.sagas import job, undo
from testbed.support.waiting import eventually
from testbed.support.workloads import Workloads, pool, workload

Worker = Callable[..., Awaitable[StockClient]]


@pytest.fixture
def workloads(resources: Resources) -> Workloads:
    return Workloads(resources)


@pytest.mark.parametrize("named", [False, True])
async def test_undos_scale_a_deployment_up_and_then_down(
    workloads: Workloads, worker: Worker, named: bool
) -> None:
    queue, resources = workloads.queue("pay"), workloads.resources
    refunds = workloads.queue("refunds") if named else f"{queue}:compensation"
    quick: dict[str, Any] = {"cooldownSeconds": 1, "jobsPerReplica": 1}
    workloads.apply(workload("undoers"), pool("undoers", refunds, **quick))
    workloads.says("undoers", "Ready", "True", "QueueNeverSeen")
    client = await worker()
    await client.work(queue, {"refuse": fails_for_good()})
    jobs = [job(f"charge-{n}", queue) for n in range(3)]
    undos = {each["name"]: {**undo("refund"), "queueName": refunds} for each in jobs}
    resources.apply(manifest("order", *jobs, job("refuse", queue, delay=1500), undos=undos))
    workloads.scales_to("undoers", 3)
    assert workloads.changes("undoers") == 1
    workloads.explains("undoers", "3 jobs, 1 per replica")
    status = workloads.status("undoers")
    assert (status["desiredReplicas"], status["replicas"], status["backlog"]) == (3, 3, 3)
    assert status["lastScale"]["reason"] == "3 jobs, 1 per replica"

    await client.work(refunds, {"refund": hangs()}, concurrency=3)
    resources.reaches("order", state="COMPENSATING", undone="0/3")
    await client.heard("started", name="refund")
    await client.release("refund")
    resources.reaches("order", state="FAILED", undone="3/3")
    workloads.scales_to("undoers", 0)
    assert workloads.changes("undoers") == 2
    workloads.explains("undoers", "no job needs a worker")
    events = resources.events("undoers")
    assert ("Normal", "Scaled", "from 0 to 3: 3 jobs, 1 per replica") in events
    assert ("Normal", "Scaled", "from 3 to 0: no job needs a worker") in events


async def test_a_burst_is_one_write(workloads: Workloads, worker: Worker) -> None:
    queue = workloads.queue("mail")
    workloads.apply(workload("mailers"), pool("mailers", queue, jobsPerReplica=10))
    workloads.says("mailers", "Ready", "True", "QueueNeverSeen")
    client = await worker()
    await client.manage(queue, "addBulk", [{"name": "send", "data": {}} for _ in range(45)])
    workloads.scales_to("mailers", 5)
    workloads.says("mailers", "Ready", "True", "Counting")
    found = workloads.get("Deployment", "mailers")
    assert found["metadata"]["generation"] == 2
    writers = [
        (each["manager"], each.get("subresource")) for each in found["metadata"]["managedFields"]
    ]
    assert ("jobgroup-operator", "scale") in writers
    # More jobs than maxReplicas allows: the pool reports it and keeps the limit.
    await client.manage(queue, "addBulk", [{"name": "send", "data": {}} for _ in range(100)])
    workloads.scales_to("mailers", 10)
    workloads.explains("mailers", "145 jobs need 15 replicas, maxReplicas is 10")
    assert workloads.changes("mailers") == 2


async def test_no_workload_is_scaled_down_while_a_job_is_active(
    workloads: Workloads, worker: Worker
) -> None:
    queue = workloads.queue("ship")
    quick: dict[str, Any] = {"cooldownSeconds": 1, "jobsPerReplica": 1}
    workloads.apply(workload("shippers"), pool("shippers", queue, **quick))
    client = await worker(own=True)
    await client.work(queue, {"long": hangs()}, concurrency=3)
    for name in ("long", "short", "short"):
        await client.add(queue, name)
    workloads.apply(workload("others", 3), pool("others", queue, **quick))
    busy = "1 job active, not scaling down"
    workloads.explains("others", busy)
    workloads.a_cooldown_passes()
    assert workloads.replicas("others") == 3

    # An active job whose worker is dead counts too: a new worker will run it.
    await client.kill()
    workloads.a_cooldown_passes()
    assert workloads.replicas("others") == 3
    rescuer = await worker()
    await rescuer.work(queue, stalledInterval=500)
    await rescuer.heard("completed", name="long")
    workloads.scales_to("others", 0)


async def test_frequent_short_jobs_keep_the_replicas(workloads: Workloads, worker: Worker) -> None:
    queue, quiet = workloads.queue("short"), workloads.queue("quiet")
    client = await worker()
    await client.work(queue)
    workloads.apply(workload("awake", 1), pool("awake", queue, cooldownSeconds=3))
    workloads.apply(workload("asleep", 1), pool("asleep", quiet, cooldownSeconds=6))

    async def the_other_sleeps() -> bool:
        # The job completes before the next count, so only the events of the queue show it.
        await client.heard("completed", id=await client.add(queue, "short"))
        return workloads.replicas("asleep") == 0

    await eventually(the_other_sleeps)
    assert workloads.changes("awake") == 0
    workloads.scales_to("awake", 0)


async def test_a_pool_shrinks_after_its_cooldown_and_keeps_its_minimum(
    workloads: Workloads,
) -> None:
    queue = workloads.queue("idle")
    bounds: dict[str, Any] = {"minReplicas": 1, "cooldownSeconds": 3}
    workloads.apply(workload("idlers", 4), pool("idlers", queue, **bounds))
    workloads.explains("idlers", f'the queue "{queue}" is not in Redis yet; check spec.queueName')
    workloads.scales_to("idlers", 1)
    last = workloads.last_scale("idlers")
    assert (last["fromReplicas"], last["toReplicas"]) == (4, 1)
    assert last["reason"] == "no job needs a worker, minReplicas is 1"


async def test_a_paused_pool_only_counts(workloads: Workloads, worker: Worker) -> None:
    queue = workloads.queue("held")
    workloads.apply(workload("held", 0), pool("held", queue, paused=True))
    client = await worker()
    await client.add(queue, "waits")
    workloads.says("held", "ScalingActive", "False", "Paused")
    workloads.a_cooldown_passes()
    assert workloads.changes("held") == 0
    workloads.apply(pool("held", queue, paused=False))
    workloads.scales_to("held", 1)
    workloads.says("held", "ScalingActive", "True", "Counting")


async def test_a_paused_queue_needs_no_worker(workloads: Workloads, worker: Worker) -> None:
    queue = workloads.queue("stopped")
    client = await worker()
    await client.manage(queue, "pause")
    await client.add(queue, "waits")
    workloads.apply(workload("stopped", 1), pool("stopped", queue, cooldownSeconds=1))
    workloads.scales_to("stopped", 0)
    workloads.explains("stopped", "the queue is paused")
    await client.manage(queue, "resume")
    workloads.scales_to("stopped", 1)


async def test_a_pool_scales_down_before_a_distant_retry_and_up_for_it(
    workloads: Workloads, worker: Worker
) -> None:
    queue = workloads.queue("later")
    client = await worker()
    await client.add(queue, "retry", delay=15_000)
    workloads.apply(workload("later", 1), pool("later", queue, cooldownSeconds=2))
    workloads.scales_to("later", 0)
    # The queue has no new event, and no worker moves the delayed job.
    workloads.scales_to("later", 1)
    workloads.explains("later", "1 job, 5 per replica")
    assert workloads.status("later")["jobs"]["delayed"] == 1


async def test_a_statefulset_is_scaled_too(workloads: Workloads, worker: Worker) -> None:
    queue = workloads.queue("kept")
    target = {"kind": "StatefulSet", "name": "keepers"}
    made = pool("keepers", queue, scaleTargetRef=target)
    workloads.apply(workload("keepers", 0, "StatefulSet"), made)
    await (await worker()).add(queue, "waits")
    workloads.scales_to("keepers", 1, "StatefulSet")


async def test_two_workloads_may_share_a_queue(workloads: Workloads, worker: Worker) -> None:
    queue = workloads.queue("common")
    for name, cooldown in (("left", 1), ("right", 600)):
        workloads.apply(workload(name), pool(name, queue, cooldownSeconds=cooldown))
        workloads.says(name, "Ready", "True", "QueueNeverSeen")
    await (await worker()).add(queue, "waits")
    workloads.scales_to("left", 1)
    workloads.scales_to("right", 1)
