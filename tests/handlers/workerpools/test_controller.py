"""The loop of all pools: no pool holds up another, and what is gone or lost is found out."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from handlers import pools
from handlers.cluster import ApiError, ref_of
from jobgroup import connect
from jobgroup.queues import Queues
from jobgroup.replicas import Backlog
from testbed.apiserver import KubectlError
from testbed.stages import PREFIX, Stage
from testbed.waiting import eventually, wait_for
from tests.handlers.looping import Body, Ground, Send


@pytest.fixture
async def ground(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
    monkeypatch.setenv("KUBECONFIG", str(stage.api.operator))
    async with connect(stage.redis.url) as redis:
        ground = Ground(stage, redis, await stage.client())
        yield ground
        await ground.stop()
        await ground.cluster.close()


async def test_a_workload_that_is_slow_to_answer_holds_up_no_other(ground: Ground) -> None:
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
    ground.cluster.way = slow
    await ground.apply("slow", jobsPerReplica=1)
    await asked.wait()
    # What stirs meanwhile is heard, there and elsewhere.
    await ground.client.add("slow", "waits")
    await ground.client.add("quick", "waits")
    await ground.scales_to("quick", 1)
    await ground.client.add("slow", "waits")
    assert times == 1
    answered.set()
    await ground.scales_to("slow", 2)


async def test_a_pool_that_went_unheard_is_found_to_be_gone(ground: Ground) -> None:
    ghost = await ground.apply("order")
    await ground.says("order", "Ready", "True", "QueueNeverSeen")
    await ground.delete("order")
    # Whoever has its place scales at once, and not against it.
    heir = await ground.apply("order")
    await ground.says("order", "Ready", "True", "QueueNeverSeen")

    async def only_the_heir_is_known() -> bool:
        return [ref for ref, _ in ground.pools.statuses()] == [ref_of(heir)]

    assert ref_of(ghost) != ref_of(heir)
    await eventually(only_the_heir_is_known)


async def test_a_pool_that_is_gone_scales_no_more(ground: Ground) -> None:
    await ground.apply("order")
    await ground.says("order", "Ready", "True", "QueueNeverSeen")
    await ground.delete("order")
    await ground.client.add("order", "waits")
    await eventually(ground.knows_none)


async def test_a_pool_at_rest_is_checked_now_and_then(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "SLOW_SECONDS", 0.5)
    await ground.apply("order")
    await ground.says("order", "Ready", "True", "QueueNeverSeen")
    await ground.delete("order")
    await eventually(ground.knows_none)


async def test_an_event_that_comes_late_is_no_news(ground: Ground) -> None:
    old = await ground.apply("order", paused=True)
    await ground.apply("order", minReplicas=1)
    await ground.says("order", "ScalingActive", "True", "QueueNeverSeen")
    known = ground.pools.statuses()
    ground.pools.notice(ref_of(old), old)
    assert ground.pools.statuses() == known


async def test_the_younger_of_two_makes_way_and_waits_after_a_restart(ground: Ground) -> None:
    target: Body = {"scaleTargetRef": {"name": "red"}, "jobsPerReplica": 1}
    made = await ground.make("red", **target), await ground.make("blue", **target)
    older, younger = (
        ref_of(body).name
        for body in sorted(
            made, key=lambda body: (body["metadata"]["creationTimestamp"], ref_of(body).uid)
        )
    )
    # Heard of first, it does not know of the other yet.
    await ground.tell(younger)
    await ground.says(younger, "Ready", "True", "QueueNeverSeen")
    await ground.tell(older)
    await ground.says(younger, "Stalled", "True", "Conflict")
    await ground.restart()
    await ground.client.add(younger, "waits")
    await ground.tell(younger)

    async def counted() -> bool:
        status = await ground.tries(ground.workloads.status, younger)
        return bool(status["backlog"] == 1)

    await eventually(counted)
    assert await ground.tries(ground.workloads.changes, "red") == 0
    for _ in range(2):
        await ground.client.add(older, "waits")
    await ground.tell(older)
    await ground.scales_to("red", 2)
    assert await ground.tries(ground.workloads.changes, "red") == 1


async def test_events_that_are_refused_keep_no_status_unwritten(ground: Ground) -> None:
    async def refuse(method: str, path: str, send: Send) -> Body:
        if path.endswith("/events"):
            raise ApiError(403, "the namespace is being terminated")
        return await send()

    ground.cluster.way = refuse
    await ground.client.add("order", "waits")
    await ground.apply("order")
    await ground.says("order", "Ready", "True", "Counting")
    status = await ground.tries(ground.workloads.status, "order")
    assert status["lastScale"]["toReplicas"] == 1


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_scaling_whose_answer_is_lost_is_told_if_it_was_done(
    ground: Ground, arrives: bool
) -> None:
    async def lose(method: str, path: str, send: Send) -> Body:
        if "/scale?" not in path:
            return await send()
        if arrives:
            await send()
        else:
            # Nor is there any need for it by the next time.
            ground.stage.store.delete(f"{PREFIX}:order:wait")
        raise ApiError(0, "the API server is out of reach")

    ground.cluster.way = lose
    await ground.client.add("order", "waits")
    await ground.apply("order")
    await ground.says("order", "Ready", "True", "Counting")
    assert await ground.tries(ground.workloads.changes, "order") == arrives
    status = await ground.tries(ground.workloads.status, "order")
    told = status.get("lastScale", {})
    assert (told.get("fromReplicas"), told.get("toReplicas")) == (
        (0, 1) if arrives else (None,) * 2
    )
    scaled = ("Normal", "Scaled", "from 0 to 1: 1 job, 5 a replica")
    events = await ground.tries(ground.stage.resources.events, "order")
    assert events == ([scaled] if arrives else [])


async def test_a_scaling_that_was_refused_is_not_told(ground: Ground) -> None:
    async def refuse(method: str, path: str, send: Send) -> Body:
        if "/scale?" in path:
            # As if somebody had done it by hand, and the operator were not allowed to.
            await send()
            raise ApiError(403, "forbidden")
        return await send()

    ground.cluster.way = refuse
    await ground.client.add("order", "waits")
    await ground.apply("order")
    await ground.says("order", "Stalled", "True", "TargetRefused")
    await ground.client.add("order", "waits too")
    await ground.says("order", "Ready", "True", "Counting")
    assert "lastScale" not in await ground.tries(ground.workloads.status, "order")


async def test_who_does_not_lead_any_more_scales_nothing(ground: Ground) -> None:
    ground.leads = False
    asked: list[str] = []

    async def note(method: str, path: str, send: Send) -> Body:
        asked.append(path)
        return await send()

    ground.cluster.way = note
    await ground.apply("order", 3, cooldownSeconds=0)

    async def has_tried_twice() -> bool:
        return sum(path.endswith("/deployments/order") for path in asked) > 1

    await eventually(has_tried_twice)
    assert await ground.tries(ground.workloads.changes, "order") == 0
    ground.leads = True
    await ground.scales_to("order", 0)


async def test_a_queue_that_cannot_be_counted_again_is_no_reason_to_shrink(ground: Ground) -> None:
    async def spoil(method: str, path: str, send: Send) -> Body:
        if path.endswith("/deployments/order"):
            ground.stage.store.set(f"{PREFIX}:order:wait", "no list")
        return await send()

    ground.cluster.way = spoil
    await ground.apply("order", 3, cooldownSeconds=0)
    assert "WRONGTYPE" in await ground.says("order", "Ready", "False", "RedisError")
    assert await ground.tries(ground.workloads.changes, "order") == 0


async def test_a_job_that_comes_and_goes_at_the_last_moment_begins_the_cooldown_anew(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ground.client.work("order")
    again = Queues.backlogs
    counted = 0

    async def late(queues: Queues, asked: Sequence[tuple[str, int]]) -> list[Backlog | str]:
        # The loop itself counts first; whoever is about to shrink counts once more.
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
        assert await ground.tries(ground.workloads.changes, "order") == 0
    await ground.scales_to("order", 0)


@pytest.fixture(params=["replicas", "size"])
def field(stage: Stage, request: pytest.FixtureRequest) -> Iterator[str]:
    """Name where a kind of its own, Fleet, keeps the number that its scale subresource shows."""
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
        with contextlib.suppress(KubectlError):  # it is not served yet
            stage.resources.apply({**fleet, "spec": {field: 0}})
            return True
        return False

    wait_for(is_made)
    yield field
    stage.api.kubectl("delete", "crd", name)


async def test_a_kind_of_another_s_is_scaled_by_its_replicas_or_refused(
    ground: Ground, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if it had been granted to the operator.
    monkeypatch.setenv("KUBECONFIG", str(ground.stage.api.admin))
    await ground.client.add("order", "waits")
    kind = {"apiVersion": f"{field}.example.org/v1", "kind": "Fleet", "name": "order"}
    await ground.apply("order", scaleTargetRef=kind)
    if field == "replicas":
        fleets = "/apis/replicas.example.org/v1/namespaces/{}/fleets"
        await ground.tries(ground.workloads.scales_to, "order", 1, fleets)
    else:
        said = await ground.says("order", "Stalled", "True", "TargetRefused")
        assert said == "Fleet order has no .spec.replicas: it cannot be scaled by a pool"
