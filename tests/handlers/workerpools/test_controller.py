"""The controller of WorkerPools: no pool delays another, and missed events are detected."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import pytest

from handlers.kube.client import ApiError
from handlers.kube.refs import ref_of
from handlers.workerpools import controller, worker_check
from handlers.workerpools.pool import Pool
from handlers.workerpools.worker_check import WorkerCheck
from jobgroup import connect
from jobgroup.model.backlog import Backlog
from jobgroup.store.queues import Queues
from testbed.servers.stock import hangs
from testbed.support.errors import Rejected
from testbed.support.stages import PREFIX, Stage
from testbed.support.waiting import eventually, wait_for
from tests.handlers.workerpools.looping import Body, Ground, Send


@pytest.fixture
async def ground(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
    monkeypatch.setenv("KUBECONFIG", str(stage.api.operator))
    async with connect(stage.redis.url) as redis:
        ground = Ground(stage, redis, await stage.client())
        yield ground
        await ground.stop()
        await ground.api.close()


async def test_a_slow_workload_delays_no_other_pool(ground: Ground) -> None:
    asked, answered, times = asyncio.Event(), asyncio.Event(), 0

    async def slow(method: str, path: str, send: Send) -> Body:
        nonlocal times
        if path.endswith("/deployments/slow"):
            times += 1
            asked.set()
            await answered.wait()
        return await send()

    await ground.apply("quick")
    await ground.says("quick", "Ready", "True", "QueueNeverSeen")
    ground.api.way = slow
    await ground.apply("slow", jobsPerReplica=1)
    await asked.wait()
    # Jobs that arrive meanwhile are counted, in both queues.
    await ground.client.add("slow", "waits")
    await ground.client.add("quick", "waits")
    await ground.scales_to("quick", 1)
    await ground.client.add("slow", "waits")
    assert times == 1
    answered.set()
    await ground.scales_to("slow", 2)


async def test_the_jobs_of_all_due_pools_are_counted_in_one_call(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"red", "green", "blue"}
    bodies = [await ground.make(name) for name in names]
    calls: list[set[str]] = []
    count = Queues.backlogs

    async def noted(queues: Queues, asked: Sequence[tuple[str, int]]) -> list[Backlog | str]:
        calls.append({queue for queue, _ in asked})
        return await count(queues, asked)

    monkeypatch.setattr(Queues, "backlogs", noted)
    for body in bodies:
        ground.pools.enqueue(ref_of(body), body)
    for name in names:
        await ground.says(name, "Ready", "True", "QueueNeverSeen")
    assert calls[0] == names


async def test_a_deleted_pool_is_detected_without_a_watch_event_when_it_is_replaced(
    ground: Ground,
) -> None:
    ghost = await ground.apply("order")
    await ground.says("order", "Ready", "True", "QueueNeverSeen")
    await ground.delete("order")
    # The pool that replaces it scales at once, without a conflict.
    heir = await ground.apply("order")
    await ground.says("order", "Ready", "True", "QueueNeverSeen")

    async def only_the_heir_is_known() -> bool:
        return [ref for ref, _ in ground.pools.statuses()] == [ref_of(heir)]

    assert ref_of(ghost) != ref_of(heir)
    await eventually(only_the_heir_is_known)


async def test_a_deleted_pool_is_detected_without_a_watch_event_when_a_job_arrives(
    ground: Ground,
) -> None:
    await ground.apply("order")
    await ground.says("order", "Ready", "True", "QueueNeverSeen")
    await ground.delete("order")
    await ground.client.add("order", "waits")
    await eventually(ground.knows_none)


async def test_a_deleted_pool_is_detected_without_a_watch_event_by_a_resync(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "RESYNC_SECONDS", 0.5)
    await ground.apply("order")
    await ground.says("order", "Ready", "True", "QueueNeverSeen")
    await ground.delete("order")
    await eventually(ground.knows_none)


async def test_an_outdated_watch_event_is_ignored(ground: Ground) -> None:
    old = await ground.apply("order", paused=True)
    await ground.apply("order", minReplicas=1)
    await ground.says("order", "ScalingActive", "True", "QueueNeverSeen")
    known = ground.pools.statuses()
    ground.pools.enqueue(ref_of(old), old)
    assert ground.pools.statuses() == known


async def test_the_younger_of_two_pools_does_not_scale_even_after_a_restart(ground: Ground) -> None:
    target: Body = {"scaleTargetRef": {"name": "red"}, "jobsPerReplica": 1}
    made = await ground.make("red", **target), await ground.make("blue", **target)
    older, younger = (
        ref_of(body).name
        for body in sorted(
            made, key=lambda body: (body["metadata"]["creationTimestamp"], ref_of(body).uid)
        )
    )
    # The event of the younger pool arrives first; the older pool is still unknown.
    await ground.enqueue(younger)
    await ground.says(younger, "Ready", "True", "QueueNeverSeen")
    await ground.enqueue(older)
    await ground.says(younger, "Stalled", "True", "Conflict")
    await ground.restart()
    await ground.client.add(younger, "waits")
    await ground.enqueue(younger)

    async def counted() -> bool:
        status = await ground.in_thread(ground.workloads.status, younger)
        return bool(status["backlog"] == 1)

    await eventually(counted)
    assert await ground.in_thread(ground.workloads.changes, "red") == 0
    for _ in range(2):
        await ground.client.add(older, "waits")
    await ground.enqueue(older)
    await ground.scales_to("red", 2)
    assert await ground.in_thread(ground.workloads.changes, "red") == 1


async def test_the_status_is_written_if_events_are_refused(ground: Ground) -> None:
    async def refuse(method: str, path: str, send: Send) -> Body:
        if path.endswith("/events"):
            raise ApiError(403, "the namespace is being terminated")
        return await send()

    ground.api.way = refuse
    await ground.client.add("order", "waits")
    await ground.apply("order")
    await ground.says("order", "Ready", "True", "Counting")
    status = await ground.in_thread(ground.workloads.status, "order")
    assert status["lastScale"]["toReplicas"] == 1


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_scaling_with_a_lost_response_is_reported_if_it_was_carried_out(
    ground: Ground, arrives: bool
) -> None:
    async def lose(method: str, path: str, send: Send) -> Body:
        if "/scale?" not in path:
            return await send()
        if arrives:
            await send()
        else:
            # At the next count, no replica is needed.
            ground.stage.store.delete(f"{PREFIX}:order:wait")
        raise ApiError(0, "the API server is out of reach")

    ground.api.way = lose
    await ground.client.add("order", "waits")
    await ground.apply("order")
    await ground.says("order", "Ready", "True", "Counting")
    assert await ground.in_thread(ground.workloads.changes, "order") == arrives
    status = await ground.in_thread(ground.workloads.status, "order")
    told = status.get("lastScale", {})
    assert (told.get("fromReplicas"), told.get("toReplicas")) == (
        (0, 1) if arrives else (None,) * 2
    )
    scaled = ("Normal", "Scaled", "from 0 to 1: 1 job, 5 per replica")
    events = await ground.in_thread(ground.stage.resources.events, "order")
    assert events == ([scaled] if arrives else [])


async def test_a_refused_scaling_is_not_reported(ground: Ground) -> None:
    async def refuse(method: str, path: str, send: Send) -> Body:
        if "/scale?" in path:
            # A person scales the workload; the request of the operator is refused.
            await send()
            raise ApiError(403, "forbidden")
        return await send()

    ground.api.way = refuse
    await ground.client.add("order", "waits")
    await ground.apply("order")
    await ground.says("order", "Stalled", "True", "TargetRefused")
    await ground.client.add("order", "waits too")
    await ground.says("order", "Ready", "True", "Counting")
    assert "lastScale" not in await ground.in_thread(ground.workloads.status, "order")


async def test_a_replica_that_lost_the_lease_scales_nothing(ground: Ground) -> None:
    ground.is_leader = False
    asked: list[str] = []

    async def note(method: str, path: str, send: Send) -> Body:
        asked.append(path)
        return await send()

    ground.api.way = note
    await ground.apply("order", 3, cooldownSeconds=0)

    async def has_tried_twice() -> bool:
        return sum(path.endswith("/deployments/order") for path in asked) > 1

    await eventually(has_tried_twice)
    assert await ground.in_thread(ground.workloads.changes, "order") == 0
    ground.is_leader = True
    await ground.scales_to("order", 0)


async def test_a_workload_is_not_scaled_down_if_the_second_count_fails(ground: Ground) -> None:
    async def corrupt(method: str, path: str, send: Send) -> Body:
        if path.endswith("/deployments/order"):
            ground.stage.store.set(f"{PREFIX}:order:wait", "no list")
        return await send()

    ground.api.way = corrupt
    await ground.apply("order", 3, cooldownSeconds=0)
    assert "WRONGTYPE" in await ground.says("order", "Ready", "False", "RedisError")
    assert await ground.in_thread(ground.workloads.changes, "order") == 0


async def test_a_job_between_two_counts_restarts_the_cooldown(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ground.client.work("order")
    again = Queues.backlogs
    counted = 0

    async def late(queues: Queues, asked: Sequence[tuple[str, int]]) -> list[Backlog | str]:
        # The loop counts first; a worker counts again before it scales down.
        nonlocal counted
        if not ground.is_loop():
            counted += 1
            await ground.client.heard("completed", id=await ground.client.add("order", "short"))
        return await again(queues, asked)

    async def has_counted_twice() -> bool:
        return counted > 1

    with monkeypatch.context() as patch:
        patch.setattr(Queues, "backlogs", late)
        await ground.apply("order", 3, cooldownSeconds=1)
        await eventually(has_counted_twice)
        assert await ground.in_thread(ground.workloads.changes, "order") == 0
    await ground.scales_to("order", 0)


async def test_only_workloads_of_jobs_that_nobody_runs_are_read_again(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[str] = Counter()
    rounds, check = 0, WorkerCheck.unserved

    async def count_reads(method: str, path: str, send: Send) -> Body:
        reads[path.rpartition("/")[2]] += "/deployments/" in path
        return await send()

    async def count_rounds(workers: WorkerCheck, pools: Iterable[Pool]) -> list[Pool]:
        nonlocal rounds
        rounds += 1
        return await check(workers, pools)

    # At rest without jobs; with a job and a worker; with a job that waits for a worker.
    await ground.client.work("busy", {"long": hangs()})
    await ground.client.add("busy", "long")
    await ground.client.heard("started", name="long")
    await ground.client.add("busy", "waits")
    await ground.client.add("unserved", "waits")
    for name in ("idle", "busy", "unserved"):
        await ground.apply(name, 1, minReplicas=1)
        await ground.settles(name)
    ground.api.way = count_reads
    monkeypatch.setattr(WorkerCheck, "unserved", count_rounds)
    monkeypatch.setattr(worker_check, "REREAD_SECONDS", 0.0)
    monkeypatch.setattr(worker_check, "CHECK_SECONDS", 0.1)

    async def was_checked_often() -> bool:
        return rounds > 30 and reads["unserved"] > 1

    await eventually(was_checked_often)
    assert +reads == {"unserved": reads["unserved"]}


async def test_a_workload_scaled_to_zero_is_found_if_connections_are_not_listed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def denied(_: Queues) -> None:
        return None

    monkeypatch.setattr(Queues, "connections", denied)
    await ground.client.add("order", "waits")
    await ground.apply("order")
    await ground.scales_to("order", 1)
    await ground.settles("order")
    stop = ("scale", "deployment", "order", "--replicas=0")
    await ground.in_thread(ground.stage.resources.kubectl, *stop)
    await ground.scales_to("order", 1)


@pytest.fixture(params=["replicas", "size"])
def field(stage: Stage, request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a CRD, Fleet, and return the spec field of its scale subresource."""
    field = str(request.param)
    paths = {"specReplicasPath": f".spec.{field}", "statusReplicasPath": ".status.replicas"}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"scale": paths},
    }
    name, group = f"fleets.{field}.example.org", f"{field}.example.org"
    names = {"kind": "Fleet", "plural": "fleets", "singular": "fleet"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    stage.resources.apply(definition)
    fleet = {"apiVersion": f"{group}/v1", "kind": "Fleet", "metadata": {"name": "order"}}

    def is_made() -> bool:
        with contextlib.suppress(Rejected):  # it is not served yet
            stage.resources.apply({**fleet, "spec": {field: 0}})
            return True
        return False

    wait_for(is_made)
    yield field
    stage.api.kubectl("delete", "crd", name)


async def test_a_custom_kind_is_scaled_only_if_it_has_spec_replicas(
    ground: Ground, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Use admin rights, as if the operator had this permission.
    monkeypatch.setenv("KUBECONFIG", str(ground.stage.api.admin))
    await ground.client.add("order", "waits")
    kind = {"apiVersion": f"{field}.example.org/v1", "kind": "Fleet", "name": "order"}
    await ground.apply("order", scaleTargetRef=kind)
    if field == "replicas":
        fleet = "replicas.example.org/v1/Fleet"
        await ground.in_thread(ground.workloads.scales_to, "order", 1, fleet)
        # The kind has its own idea of ready replicas.
        odd = {"status": {"readyReplicas": "all of them"}}
        await ground.in_thread(ground.stage.resources.user.patch, fleet, "order", odd)
        await ground.client.manage("order", "addBulk", [{"name": "waits", "data": {}}] * 5)
        await ground.in_thread(ground.workloads.scales_to, "order", 2, fleet)
        await ground.in_thread(ground.workloads.explains, "order", "6 jobs, 5 per replica")
        assert "readyReplicas" not in await ground.in_thread(ground.workloads.status, "order")
    else:
        said = await ground.says("order", "Stalled", "True", "TargetRefused")
        assert said == "Fleet order has no .spec.replicas: it cannot be scaled by a pool"
