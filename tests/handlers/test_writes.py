"""How often the operator writes to the API server, by the server's own count."""

import re
from collections import Counter

from testbed.islands import Island
from testbed.resources import manifest
from testbed.sagas import job
from testbed.stock import hangs

METRIC = re.compile(r"apiserver_request_total\{(.*)\} (\d+)")


def requests(island: Island) -> Counter[str]:
    """Count the requests about JobGroups and Events so far, by verb and resource."""
    found: Counter[str] = Counter()
    for labels, count in METRIC.findall(island.api.kubectl("get", "--raw", "/metrics")):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if label["resource"] in ("jobgroups", "events"):
            found[f"{label['verb']} {label['resource']}"] += int(count)
    return found


def writes(island: Island, before: Counter[str]) -> int:
    """Count what was written since, but for what kubectl created."""
    since = requests(island) - before
    assert since["PUT jobgroups"] == since["DELETE jobgroups"] == since["POST events"] == 0
    return since["PATCH jobgroups"]


async def test_three_jobs_that_succeed_cost_at_most_three_writes(island: Island) -> None:
    queues = ("payments", "inventory", "mails")
    with island.operator():
        client = await island.worker()
        for queue in queues:
            await client.work(queue)
        before = requests(island)
        island.resources.apply(manifest("order", *(job(f"at-{queue}", queue) for queue in queues)))
        island.resources.reaches("order", state="COMPLETED")
        assert 2 <= writes(island, before) <= 3


async def test_jobs_that_complete_one_after_the_other_are_told_of_in_a_few_writes(
    island: Island,
) -> None:
    # There is something new to tell every 50 ms.
    jobs = [job(f"job-{n}", "payments", delay=50 * n) for n in range(60)]
    last = jobs[-1]["name"]
    with island.operator():
        client = await island.worker("bullmq6")
        await client.work("payments", {last: hangs()})
        before = requests(island)
        island.resources.apply(manifest("order", *jobs))
        island.resources.reaches("order", progress="59/60", state="ACTIVE")
        await client.release(last)
        island.resources.reaches("order", state="COMPLETED")
        assert writes(island, before) <= len(jobs) / 4


async def test_an_operator_that_starts_writes_nothing_where_nothing_changed(island: Island) -> None:
    backoff = {"type": "exponential", "delay": 1000}
    unfit = manifest("unfit", job("charge", "payments", attempts=50, backoff=backoff))
    resources = island.resources
    names = ("ended", "running", "held", "unfit", "cancelled")
    with island.operator():
        resources.apply(
            manifest("ended", job("charge", "payments")),
            manifest("running", job("charge", "mails")),
            manifest("held", job("charge", "mails"), suspend=True),
            manifest("cancelled", job("charge", "mails"), cancel=True),
            unfit,
        )
        await (await island.worker("bullmq5")).work("payments")
        resources.reaches("ended", state="COMPLETED")
        resources.reaches("running", state="ACTIVE")
        resources.condition("held", "Reconciling", "True", "Suspended")
        resources.stalls("unfit", "InvalidSpec")
        resources.stalls("cancelled", "Cancelled")
    versions = [resources.get(name)["metadata"]["resourceVersion"] for name in names]
    before = requests(island)
    with island.operator():
        # Objects are looked at one after the other, so the others have been when this one is made.
        resources.apply(manifest("next", job("charge", "mails")))
        resources.reaches("next", state="ACTIVE")
        assert writes(island, before) == 2
    assert [resources.get(name)["metadata"]["resourceVersion"] for name in names] == versions
