"""How often the operator writes to the API server, as counted by the server."""

import asyncio
import re
from collections import Counter
from contextlib import closing
from pathlib import Path

from kubernetes.watch import Watch

from jobgroup import Driver, JobGroups
from testbed.servers.stock import hangs
from testbed.support.resources import manifest
from testbed.support.sagas import job, reached
from testbed.support.stages import LOSE, PAY, PREFIX, UNDOS, Stage
from testbed.support.waiting import wait_for

BUSY = Path(__file__).with_name("busy_operator.py")
METRIC = re.compile(r"apiserver_request_total\{(.*)\} (\d+)")


def requests(stage: Stage) -> Counter[str]:
    """Count the requests about JobGroups and Events so far, by verb and resource."""
    found: Counter[str] = Counter()
    for labels, count in METRIC.findall(stage.api.kubectl("get", "--raw", "/metrics")):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if label["resource"] in ("jobgroups", "events"):
            found[f"{label['verb']} {label['resource']}"] += int(count)
    return found


def writes(stage: Stage, before: Counter[str]) -> int:
    """Count the writes since `before`; kubectl sends other verbs."""
    since = requests(stage) - before
    assert since["DELETE jobgroups"] == since["POST events"] == 0
    return since["PATCH jobgroups"] + since["PUT jobgroups"]


async def test_three_jobs_that_succeed_cost_at_most_three_writes(stage: Stage) -> None:
    queues = ("payments", "inventory", "mails")
    with stage.operator():
        client = await stage.client()
        for queue in queues:
            await client.work(queue)
        before = requests(stage)
        stage.resources.apply(manifest("order", *(job(f"at-{queue}", queue) for queue in queues)))
        stage.resources.reaches("order", state="COMPLETED")
        assert 2 <= writes(stage, before) <= 3


async def test_a_group_that_ends_in_a_burst_costs_two_writes(stage: Stage) -> None:
    with stage.operator(script=BUSY):
        await (await stage.client()).work("payments")
        before = requests(stage)
        stage.resources.apply(manifest("order", *(job(f"job-{n}", "payments") for n in range(3))))
        stage.resources.reaches("order", state="COMPLETED")
        assert writes(stage, before) == 2


def states_since(stage: Stage, version: str) -> list[str]:
    """Return the states that the order has had since a resourceVersion; the last is FAILED."""
    states: list[str] = []
    watch = stage.resources.user.watch("JobGroup", Watch(), resource_version=version)
    with closing(watch) as changes:
        for _, body in changes:
            state = body["status"]["state"]
            states += [] if state in states[-1:] else [state]
            if state == "FAILED":
                break
    return states


async def test_a_group_undone_before_its_first_status_is_still_shown_as_compensating(
    stage: Stage,
) -> None:
    with stage.operator(script=BUSY):
        stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS))
        wait_for(lambda: stage.store.zcard("bull:payments:groups") == 1)
    order = stage.resources.get("order")
    assert "state" not in order.get("status", {})
    # A driver without an operator.
    await stage.worker()
    async with JobGroups.connect(stage.redis.url, prefix=PREFIX) as groups:
        driver = asyncio.create_task(Driver(groups.store).run())
        await reached(groups.store, order["metadata"]["uid"], state="FAILED")
        driver.cancel()
    with stage.operator():
        stage.resources.reaches("order", state="FAILED", undone="1/1")
    states = states_since(stage, order["metadata"]["resourceVersion"])
    assert states == ["COMPENSATING", "FAILED"]


async def test_many_completing_jobs_cost_few_writes(
    stage: Stage,
) -> None:
    # The counts change every 50 ms.
    jobs = [job(f"job-{n}", "payments", delay=50 * n) for n in range(60)]
    last = jobs[-1]["name"]
    with stage.operator():
        client = await stage.client("bullmq6")
        await client.work("payments", {last: hangs()})
        before = requests(stage)
        stage.resources.apply(manifest("order", *jobs))
        stage.resources.reaches("order", progress="59/60", state="ACTIVE")
        await client.release(last)
        stage.resources.reaches("order", state="COMPLETED")
        assert writes(stage, before) <= len(jobs) / 4


async def test_a_restarted_operator_writes_nothing_if_nothing_changed(stage: Stage) -> None:
    backoff = {"type": "exponential", "delay": 1000}
    unfit = manifest("unfit", job("charge", "payments", attempts=50, backoff=backoff))
    resources = stage.resources
    names = ("ended", "running", "held", "unfit", "cancelled")
    with stage.operator():
        resources.apply(
            manifest("ended", job("charge", "payments")),
            manifest("running", job("charge", "mails")),
            manifest("held", job("charge", "mails"), suspend=True),
            manifest("cancelled", job("charge", "mails"), cancel=True),
            unfit,
        )
        await (await stage.client("bullmq5")).work("payments")
        resources.reaches("ended", state="COMPLETED")
        resources.reaches("running", state="ACTIVE")
        resources.condition("held", "Reconciling", "True", "Suspended")
        resources.stalls("unfit", "InvalidSpec")
        resources.stalls("cancelled", "Cancelled")
    versions = [resources.get(name)["metadata"]["resourceVersion"] for name in names]
    before = requests(stage)
    with stage.operator():
        # Objects are reconciled in order: when this group is created, the others are done.
        resources.apply(manifest("next", job("charge", "mails")))
        resources.reaches("next", state="ACTIVE")
        assert writes(stage, before) == 2
    assert [resources.get(name)["metadata"]["resourceVersion"] for name in names] == versions


async def test_a_large_object_is_not_read_before_its_counts_are_due(stage: Stage) -> None:
    # Its counts are written every eight seconds, and change in between.
    jobs = [{**job(f"job-{n}", "payments", delay=40 * n), "data": "x" * 2000} for n in range(200)]
    with stage.operator():
        await (await stage.client()).work("payments")
        before = requests(stage)
        await stage.send("POST", [("", manifest("order", *jobs))])
        # Wait in Redis: the test must not read the object, because reads are counted.
        wait_for(lambda: stage.store.zcard("bull:payments:groups") == 1)
        [group] = stage.store.zrange("bull:payments:groups", 0, -1)
        key = f"bull:payments:groups:{group!s}"
        wait_for(lambda: stage.store.hget(key, "state") == "COMPLETED")
        assert (requests(stage) - before)["GET jobgroups"] <= 4
        stage.resources.reaches("order", state="COMPLETED")
