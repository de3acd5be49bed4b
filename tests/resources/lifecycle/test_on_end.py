"""onEnd of a JobGroup: its jobs, the WorkerPool of their queue, and what prevents one."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from testbed.servers.stock import StockClient, fails_for_good
from testbed.support.resources import Resources, manifest, until
from testbed.support.sagas import job
from testbed.support.stages import Stage
from testbed.support.workloads import Workloads, pool, workload

Worker = Callable[..., Awaitable[StockClient]]


def told(queue: str, **fields: Any) -> dict[str, Any]:
    return {"when": "Failed", "queueName": queue, "name": "told", **fields}


@pytest.fixture
def workloads(resources: Resources) -> Workloads:
    return Workloads(resources)


async def test_the_end_of_a_group_wakes_the_workers_of_its_queue(
    workloads: Workloads, worker: Worker
) -> None:
    resources = workloads.resources
    pay, alerts = workloads.queue("pay"), workloads.queue("alerts")
    workloads.apply(workload("callers"), pool("callers", alerts, jobsPerReplica=1))
    workloads.says("callers", "Ready", "True", "QueueNeverSeen")
    client = await worker()
    await client.work(pay, {"charge": fails_for_good("no money")})
    resources.apply(manifest("order", job("charge", pay), onEnd=[told(alerts, data={"n": 1})]))
    resources.reaches("order", state="FAILED")
    workloads.scales_to("callers", 1)
    await client.work(alerts)
    started = await client.heard("started", name="told")
    uid = resources.get("order")["metadata"]["uid"]
    assert started["data"]["groupId"] == uid
    assert started["data"]["failure"]["jobName"] == "charge"
    assert started["data"]["data"] == {"n": 1}
    await client.heard("completed", name="told")
    assert client.count("started", name="told") == 1


async def test_a_job_that_cannot_be_added_is_reported_until_it_is(stage: Stage) -> None:
    resources, wait = stage.resources, "bull:alerts:wait"
    stage.store.set(wait, "in the way")
    client = await stage.client()
    await client.work("payments", {"charge": fails_for_good("no money")})

    def message() -> str:
        conditions = resources.status("order").get("conditions", [])
        return "".join(each["message"] for each in conditions if each["type"] == "Finished")

    with stage.operator():
        resources.apply(manifest("order", job("charge"), onEnd=[told("alerts")]))
        uid = resources.reaches("order", state="FAILED")["groupId"]
        assert f"; onEnd: job {uid}-end-0-1 for the queue alerts: WRONGTYPE" in message()
        stage.store.delete(wait)
        until(lambda: "onEnd" not in message(), message)
        assert stage.store.lrange(wait, 0, -1) == [f"{uid}-end-0-1"]
    stage.store.delete(*stage.store.keys("bull:alerts:*"))


async def test_a_resource_that_is_cancelled_before_its_group_was_created_tells_nobody(
    stage: Stage,
) -> None:
    resources = stage.resources
    resources.apply(
        manifest("order", job("charge"), onEnd=[told("alerts", when="Always")], cancel=True)
    )
    with stage.operator():
        resources.reaches("order", state="FAILED")
    assert stage.store.keys("bull:alerts:*") == []


async def test_data_that_is_too_large_is_refused(resources: Resources) -> None:
    large = told("alerts", data="x" * 65535)
    resources.apply(manifest("order", job("charge"), onEnd=[told("alerts"), large]))
    resources.reaches("order", state="FAILED")
    reason = resources.stalls("order", "InvalidSpec")
    assert reason == "onEnd[1].data has 65 KB; the limit is 64 KB"
