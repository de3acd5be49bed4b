"""The loop of all pools, run in the test itself: what comes between it and a real API server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import kopf
import pytest
from redis.asyncio import Redis

from handlers import pools
from handlers.cluster import ApiError, Cluster, ref_of
from handlers.pools import Pools
from jobgroup import Store, connect
from testbed.stages import PREFIX, Stage
from testbed.stock import StockClient
from testbed.waiting import eventually
from testbed.workloads import Workloads, pool, workload

Body = dict[str, Any]
Send = Callable[[], Awaitable[Body]]
Way = Callable[[str, str, Send], Awaitable[Body]]


class Disturbed(Cluster):
    """A way to the API server that a test may lead elsewhere."""

    way: Way = staticmethod(lambda _method, _path, send: send())

    async def request(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> Body:
        def send() -> Awaitable[Body]:
            return super(Disturbed, self).request(method, path, body, kind)

        return await self.way(method, path, send)


class Ground:
    """The loop, and what it stands on; a watch there is none, so a test tells of pools itself."""

    def __init__(self, stage: Stage, redis: Redis, client: StockClient) -> None:
        self.stage = stage
        self.cluster = Disturbed(kopf.OperatorSettings())
        self.client = client
        self.workloads = Workloads(stage.resources)
        self._queues = Store(redis, PREFIX).queues
        self._start()

    def _start(self) -> None:
        self.pools = Pools(self.cluster, self._queues)
        self._loop = asyncio.create_task(self.pools.run())

    async def stop(self) -> None:
        self._loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._loop

    async def restart(self) -> None:
        """Begin anew, and know of no pool."""
        await self.stop()
        self._start()

    async def apply(self, name: str, replicas: int = 0, **spec: Any) -> Body:
        """Make a workload and a pool of the queue of its name, and tell of it."""
        await self.tries(self.workloads.apply, workload(name, replicas), pool(name, name, **spec))
        return await self.tell(name)

    async def delete(self, name: str) -> None:
        """Delete a pool, and tell nobody."""
        await self.tries(self.workloads.resources.kubectl, "delete", "workerpool", name)

    async def knows_none(self) -> bool:
        return self.pools.statuses() == []

    async def tell(self, name: str) -> Body:
        body: Body = await self.tries(self.workloads.get, "workerpool", name)
        self.pools.notice(ref_of(body), body)
        return body

    async def tries(self, what: Callable[..., Any], *arguments: Any) -> Any:
        """Do what takes its time, and let the loop run meanwhile."""
        return await asyncio.to_thread(what, *arguments)

    async def scales_to(self, name: str, replicas: int) -> None:
        await self.tries(self.workloads.scales_to, name, replicas)

    async def says(self, name: str, kind: str, status: str, reason: str) -> str:
        return str(await self.tries(self.workloads.says, name, kind, status, reason))


@pytest.fixture
async def ground(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
    monkeypatch.setenv("KUBECONFIG", str(stage.api.operator))
    async with connect(stage.redis.url) as redis:
        ground = Ground(stage, redis, await stage.client())
        yield ground
        await ground.stop()
        await ground.cluster.close()


async def test_a_workload_that_is_slow_to_answer_holds_up_no_other(ground: Ground) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def slow(method: str, path: str, send: Send) -> Body:
        if path.endswith("/deployments/slow"):
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
    answered.set()
    await ground.scales_to("slow", 2)


async def test_pools_that_are_always_due_do_not_drown_the_others(ground: Ground) -> None:
    await ground.apply("quiet")
    await ground.says("quiet", "Ready", "True", "QueueNeverSeen")
    # Every millisecond another job comes within the cooldown, for as long as the test may take.
    now = int(ground.stage.store.time()[0]) * 1000
    dense = {f"{n}": (now + n) * 4096 for n in range(400_000)}
    ground.stage.store.zadd(f"{PREFIX}:dense:delayed", dense)
    await ground.apply("dense", paused=True, cooldownSeconds=30)
    await ground.says("dense", "Ready", "True", "Paused")
    await ground.client.add("quiet", "waits")
    await ground.scales_to("quiet", 1)


async def test_a_pool_that_went_unheard_is_found_to_be_gone(ground: Ground) -> None:
    ghost = await ground.apply("order")
    await ground.says("order", "Ready", "True", "QueueNeverSeen")
    await ground.delete("order")
    # Whoever has its place scales at once, and not against it.
    heir = await ground.apply("order")
    await ground.says("order", "Ready", "True", "QueueNeverSeen")
    assert [ref.uid for ref, _ in ground.pools.statuses()] == [heir["metadata"]["uid"]]
    assert ghost["metadata"]["uid"] != heir["metadata"]["uid"]


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


async def test_after_a_restart_the_younger_of_two_waits_for_the_older(ground: Ground) -> None:
    target: Body = {"scaleTargetRef": {"name": "red"}, "jobsPerReplica": 1}
    red, blue = await ground.apply("red", **target), await ground.apply("blue", **target)
    older, younger = sorted(
        (red, blue), key=lambda body: (body["metadata"]["creationTimestamp"], ref_of(body).uid)
    )
    await ground.says(ref_of(younger).name, "Stalled", "True", "Conflict")
    await ground.restart()
    await ground.client.add(ref_of(younger).name, "waits")
    await ground.tell(ref_of(younger).name)

    async def counted() -> bool:
        status = await ground.tries(ground.workloads.status, ref_of(younger).name)
        return bool(status["backlog"] == 1)

    await eventually(counted)
    assert await ground.tries(ground.workloads.changes, "red") == 0
    for _ in range(2):
        await ground.client.add(ref_of(older).name, "waits")
    await ground.tell(ref_of(older).name)
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
