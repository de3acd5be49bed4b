"""WorkerPools that conflict with each other, with an autoscaler, or with a user."""

from collections.abc import Awaitable, Callable
from typing import Any

import kopf
import pytest
from redis import Redis

from handlers.kube.client import ApiClient, Conflict
from testbed.servers.stock import StockClient, hangs
from testbed.support.errors import Rejected
from testbed.support.resources import Resources, until
from testbed.support.workloads import Workloads, autoscaler, pool, workload

Worker = Callable[..., Awaitable[StockClient]]


@pytest.fixture
def workloads(resources: Resources) -> Workloads:
    return Workloads(resources)


async def test_of_two_pools_the_older_scales(workloads: Workloads, worker: Worker) -> None:
    queues = {"red": workloads.queue("red"), "blue": workloads.queue("blue")}
    workloads.apply(
        workload("shared"),
        *(pool(name, queue, "shared", jobsPerReplica=1) for name, queue in queues.items()),
    )

    def age(name: str) -> tuple[str, str]:
        meta = workloads.get("WorkerPool", name)["metadata"]
        return meta["creationTimestamp"], meta["uid"]

    older, younger = sorted(queues, key=age)
    said = workloads.says(younger, "Stalled", "True", "Conflict")
    assert said == (
        f"the WorkerPool {older} scales the same workload and is older; delete one of the two"
    )
    workloads.says(older, "Ready", "True", "QueueNeverSeen")
    client = await worker()
    for _ in range(2):
        await client.add(queues[younger], "waits")
    await client.add(queues[older], "waits")
    workloads.scales_to("shared", 1)

    # After the deletion of its pool, the other pool scales the workload.
    workloads.resources.kubectl("delete", "workerpool", older)
    workloads.scales_to("shared", 2)
    workloads.says(younger, "Ready", "True", "Counting")
    assert [c["type"] for c in workloads.status(younger)["conditions"]] == [
        "Ready",
        "ScalingActive",
    ]


async def test_a_deleted_pool_leaves_its_workload_as_it_is(
    workloads: Workloads, worker: Worker
) -> None:
    queue = workloads.queue("gone")
    workloads.apply(workload("left"), pool("left", queue, cooldownSeconds=1))
    client = await worker()
    await client.add(queue, "waits")
    workloads.scales_to("left", 1)
    workloads.resources.kubectl("delete", "workerpool", "left")
    await client.manage(queue, "drain")
    workloads.a_cooldown_passes()
    assert workloads.changes("left") == 1


async def test_a_missing_workload_is_reported_and_scaled_once_it_exists(
    workloads: Workloads, worker: Worker
) -> None:
    queue = workloads.queue("early")
    workloads.apply(pool("early", queue))
    await (await worker()).add(queue, "waits")
    said = workloads.says("early", "Stalled", "True", "TargetMissing")
    assert said == (
        f"there is no Deployment early in {workloads.resources.namespace}:"
        " create it, or correct the pool"
    )
    workloads.apply(workload("early"))
    workloads.scales_to("early", 1)
    workloads.says("early", "Ready", "True", "Counting")


async def test_a_pool_does_not_scale_while_an_autoscaler_does(
    workloads: Workloads, worker: Worker
) -> None:
    queue = workloads.queue("both")
    workloads.apply(workload("both"), autoscaler("keda", "both"), pool("both", queue))
    await (await worker()).add(queue, "waits")
    said = workloads.says("both", "Stalled", "True", "HorizontalPodAutoscaler")
    scaler = "the HorizontalPodAutoscaler keda"
    assert said == f"{scaler} scales Deployment both; the pool does not: delete one of the two"
    until(lambda: workloads.status("both").get("backlog") == 1, lambda: "the job is not counted")
    assert workloads.changes("both") == 0
    workloads.resources.kubectl("delete", "hpa", "keda")
    workloads.scales_to("both", 1)
    workloads.says("both", "Ready", "True", "Counting")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ({"kind": "ReplicaSet", "name": "x"}, "TargetRefused"),
        ({"kind": "Deploymint", "name": "x"}, "TargetMissing"),
        ({"apiVersion": "example.org/v1", "kind": "Deployment", "name": "x"}, "TargetMissing"),
    ],
)
def test_a_workload_that_cannot_be_scaled_is_reported(
    workloads: Workloads, target: dict[str, Any], reason: str
) -> None:
    workloads.apply(pool("odd", workloads.queue("odd"), scaleTargetRef=target))
    assert workloads.says("odd", "Stalled", "True", reason)


async def test_a_manual_scaling_is_corrected_only_for_waiting_jobs(
    workloads: Workloads, worker: Worker
) -> None:
    queue = workloads.queue("hand")
    workloads.apply(workload("hand"), pool("hand", queue, cooldownSeconds=600))
    client = await worker()
    await client.manage(queue, "addBulk", [{"name": "waits", "data": {}} for _ in range(12)])
    workloads.scales_to("hand", 3)
    workloads.settles("hand")
    # The queue has no event after this, and the pool does not expect a change of its workload.
    workloads.resources.kubectl("scale", "deployment", "hand", "--replicas=0")
    workloads.scales_to("hand", 3)
    assert workloads.changes("hand") == 3
    workloads.resources.kubectl("scale", "deployment", "hand", "--replicas=5")
    workloads.explains("hand", "cooling down from 5 to 3")
    assert workloads.replicas("hand") == 5


async def test_a_manual_scaling_to_zero_is_corrected_while_dead_workers_have_jobs(
    workloads: Workloads, worker: Worker
) -> None:
    queue = workloads.queue("dead")
    workloads.apply(workload("dead"), pool("dead", queue))
    client = await worker(own=True)
    await client.work(queue, {"long": hangs()})
    await client.add(queue, "long")
    await client.heard("started", name="long")
    workloads.scales_to("dead", 1)
    workloads.settles("dead")
    # The pod is killed with its job, which stays active: only a worker would take it over.
    await client.kill()
    workloads.resources.kubectl("scale", "deployment", "dead", "--replicas=0")
    workloads.scales_to("dead", 1)


async def test_a_workload_with_more_replicas_than_a_pool_allows_is_reported(
    workloads: Workloads,
) -> None:
    queue = workloads.queue("huge")
    workloads.apply(workload("huge", 20_000), pool("huge", queue, cooldownSeconds=3))
    workloads.says("huge", "Ready", "True", "QueueNeverSeen")
    status = workloads.status("huge")
    assert (status["replicas"], status["desiredReplicas"]) == (20_000, 20_000)
    workloads.scales_to("huge", 0)
    assert workloads.last_scale("huge")["fromReplicas"] == 20_000


async def test_a_scaling_of_a_changed_workload_is_refused(
    workloads: Workloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(workloads.resources.api.operator))
    workloads.apply(workload("moved", 1))
    path = f"/apis/apps/v1/namespaces/{workloads.resources.namespace}/deployments/moved"
    api = ApiClient(kopf.OperatorSettings())
    try:
        read = await api.request("GET", path)
        workloads.resources.kubectl("scale", "deployment", "moved", "--replicas=3")
        with pytest.raises(Conflict):
            await api.scale(path, read["metadata"]["resourceVersion"], 0)
    finally:
        await api.close()
    assert workloads.replicas("moved") == 3


async def test_an_unreadable_queue_blocks_only_its_own_pool(
    workloads: Workloads, worker: Worker, store: Redis
) -> None:
    corrupt, sound = workloads.queue("corrupt"), workloads.queue("sound")
    store.set(f"bull:{corrupt}:wait", "no list")
    workloads.apply(*(workload(name) for name in ("corrupt", "sound")))
    workloads.apply(pool("corrupt", corrupt), pool("sound", sound))
    assert "WRONGTYPE" in workloads.says("corrupt", "Ready", "False", "RedisError")
    client = await worker()
    await client.add(sound, "waits")
    workloads.scales_to("sound", 1)
    store.delete(f"bull:{corrupt}:wait")
    await client.add(corrupt, "waits")
    workloads.scales_to("corrupt", 1)
    workloads.says("corrupt", "Ready", "True", "Counting")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"minReplicas": 3, "maxReplicas": 2},
            "minReplicas cannot be greater than maxReplicas",
        ),
        ({"maxReplicas": 0}, "spec.maxReplicas"),
        ({"minReplicas": -1}, "spec.minReplicas"),
        ({"jobsPerReplica": 0}, "spec.jobsPerReplica"),
        ({"cooldownSeconds": -1}, "spec.cooldownSeconds"),
        ({"queueName": "_jobgroups"}, 'the queue "_jobgroups" is reserved'),
        ({"queueName": "a:b"}, "spec.queueName"),
        ({"scaleTargetRef": {"name": "../../../default/deployments/x"}}, "scaleTargetRef.name"),
        ({"scaleTargetRef": {"name": "x?y"}}, "scaleTargetRef.name"),
        (
            {"scaleTargetRef": {"apiVersion": "apps/../v1", "name": "x"}},
            "scaleTargetRef.apiVersion",
        ),
        ({"scaleTargetRef": {"kind": "a/b", "name": "x"}}, "scaleTargetRef.kind"),
        ({"replicas": 3}, "unknown field"),
    ],
)
def test_an_invalid_pool_is_refused(
    workloads: Workloads, spec: dict[str, Any], sentence: str
) -> None:
    made = pool("bad", "payments:compensation")
    made["spec"] |= spec
    with pytest.raises(Rejected, match=sentence.replace("[", r"\[")):
        workloads.resources.user.create(made)


def test_queue_and_target_cannot_be_changed(workloads: Workloads) -> None:
    queue = workloads.queue("stays")
    workloads.apply(pool("stays", queue))
    with pytest.raises(Rejected, match="queueName cannot be changed: create a new WorkerPool"):
        workloads.apply(pool("stays", "another"))
    with pytest.raises(Rejected, match="scaleTargetRef cannot be changed"):
        workloads.apply(pool("stays", queue, "another"))


def test_the_columns_of_kubectl_get(workloads: Workloads) -> None:
    queue = workloads.queue("seen")
    workloads.apply(workload("seen", 1), pool("seen", queue, minReplicas=1))
    workloads.says("seen", "Ready", "True", "QueueNeverSeen")
    header, line = workloads.resources.kubectl("get", "wp").splitlines()
    columns = ["NAME", "QUEUE", "BACKLOG", "ACTIVE", "REPLICAS", "READY", "REASON", "AGE"]
    assert header.split() == columns
    assert line.split()[:7] == ["seen", queue, "0", "0", "1", "0", "QueueNeverSeen"]
    told = workloads.resources.kubectl("explain", "workerpool.spec", "--recursive")
    assert "cooldownSeconds" in told
