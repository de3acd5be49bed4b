"""A WorkerPool among others: what it leaves alone, what it says, and how it recovers."""

from collections.abc import Awaitable, Callable
from typing import Any

import kopf
import pytest
from redis import Redis

from handlers.cluster import Cluster, Conflict
from testbed.apiserver import KubectlError
from testbed.resources import Resources, until
from testbed.stock import StockClient
from testbed.workloads import Workloads, autoscaler, pool, workload

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
        meta = workloads.get("workerpool", name)["metadata"]
        return meta["creationTimestamp"], meta["uid"]

    older, younger = sorted(queues, key=age)
    said = workloads.says(younger, "Stalled", "True", "Conflict")
    assert said == f"the WorkerPool {older} scales the same workload and is older"
    workloads.says(older, "Ready", "True", "QueueNeverSeen")
    client = await worker()
    for _ in range(2):
        await client.add(queues[younger], "waits")
    await client.add(queues[older], "waits")
    workloads.scales_to("shared", 1)

    # Its pool gone, the workload stays as it is, and the other takes over.
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


async def test_a_missing_workload_is_named_and_scaled_when_it_comes(
    workloads: Workloads, worker: Worker
) -> None:
    queue = workloads.queue("early")
    workloads.apply(pool("early", queue))
    await (await worker()).add(queue, "waits")
    said = workloads.says("early", "Stalled", "True", "TargetMissing")
    assert said == f"there is no Deployment early in {workloads.resources.namespace}"
    workloads.apply(workload("early"))
    workloads.scales_to("early", 1)
    workloads.says("early", "Ready", "True", "Counting")


async def test_it_stands_back_for_an_autoscaler_and_comes_back(
    workloads: Workloads, worker: Worker
) -> None:
    queue = workloads.queue("both")
    workloads.apply(workload("both"), autoscaler("keda", "both"), pool("both", queue))
    await (await worker()).add(queue, "waits")
    said = workloads.says("both", "Stalled", "True", "HorizontalPodAutoscaler")
    assert said == "the HorizontalPodAutoscaler keda scales Deployment both: it is left alone"
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
def test_what_cannot_be_scaled_is_said(
    workloads: Workloads, target: dict[str, Any], reason: str
) -> None:
    workloads.apply(pool("odd", workloads.queue("odd"), scaleTargetRef=target))
    assert workloads.says("odd", "Stalled", "True", reason)


async def test_whoever_scales_by_hand_is_corrected_only_by_what_waits(
    workloads: Workloads, worker: Worker
) -> None:
    queue = workloads.queue("hand")
    workloads.apply(workload("hand"), pool("hand", queue, cooldownSeconds=600))
    client = await worker()
    await client.add(queue, "waits")
    workloads.scales_to("hand", 1)
    workloads.resources.kubectl("scale", "deployment", "hand", "--replicas=0")
    workloads.scales_to("hand", 1)
    workloads.resources.kubectl("scale", "deployment", "hand", "--replicas=4")
    workloads.explains("hand", "cooling down from 4 to 1")
    assert workloads.replicas("hand") == 4


async def test_a_leader_that_wakes_too_late_scales_nothing(
    workloads: Workloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(workloads.resources.api.operator))
    workloads.apply(workload("moved", 1))
    path = f"/apis/apps/v1/namespaces/{workloads.resources.namespace}/deployments/moved"
    cluster = Cluster(kopf.OperatorSettings())
    try:
        read = await cluster.request("GET", path)
        workloads.resources.kubectl("scale", "deployment", "moved", "--replicas=3")
        with pytest.raises(Conflict):
            await cluster.scale(path, read["metadata"]["resourceVersion"], 0)
    finally:
        await cluster.close()
    assert workloads.replicas("moved") == 3


async def test_a_queue_that_cannot_be_read_holds_its_own_pool_alone(
    workloads: Workloads, worker: Worker, store: Redis
) -> None:
    spoilt, sound = workloads.queue("spoilt"), workloads.queue("sound")
    store.set(f"bull:{spoilt}:wait", "no list")
    workloads.apply(*(workload(name) for name in ("spoilt", "sound")))
    workloads.apply(pool("spoilt", spoilt), pool("sound", sound))
    assert "WRONGTYPE" in workloads.says("spoilt", "Ready", "False", "RedisError")
    client = await worker()
    await client.add(sound, "waits")
    workloads.scales_to("sound", 1)
    store.delete(f"bull:{spoilt}:wait")
    await client.add(spoilt, "waits")
    workloads.scales_to("spoilt", 1)
    workloads.says("spoilt", "Ready", "True", "Counting")


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
def test_what_cannot_be_meant_is_refused(
    workloads: Workloads, spec: dict[str, Any], sentence: str
) -> None:
    made = pool("bad", "payments:compensation")
    made["spec"] |= spec
    with pytest.raises(KubectlError, match=sentence.replace("[", r"\[")):
        workloads.apply(made)


def test_queue_and_target_stay(workloads: Workloads) -> None:
    queue = workloads.queue("stays")
    workloads.apply(pool("stays", queue))
    with pytest.raises(KubectlError, match="queueName cannot be changed: make a new WorkerPool"):
        workloads.apply(pool("stays", "another"))
    with pytest.raises(KubectlError, match="scaleTargetRef cannot be changed"):
        workloads.apply(pool("stays", queue, "another"))


def test_kubectl_shows_what_one_asks_first(workloads: Workloads) -> None:
    queue = workloads.queue("seen")
    workloads.apply(workload("seen", 1), pool("seen", queue, minReplicas=1))
    workloads.says("seen", "Ready", "True", "QueueNeverSeen")
    header, line = workloads.resources.kubectl("get", "wp").splitlines()
    columns = ["NAME", "QUEUE", "BACKLOG", "ACTIVE", "REPLICAS", "READY", "AGE"]
    assert header.split() == columns
    assert line.split()[:6] == ["seen", queue, "0", "0", "1", "0"]
    told = workloads.resources.kubectl("explain", "workerpool.spec", "--recursive")
    assert "cooldownSeconds" in told
