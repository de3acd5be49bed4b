"""The loop of all pools, run in a test itself: what comes between it and a real API server."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import kopf
from redis.asyncio import Redis

from handlers.cluster import JSON, Cluster, ref_of
from handlers.pools import Pools
from jobgroup import Store
from testbed.stages import PREFIX, Stage
from testbed.stock import StockClient
from testbed.workloads import Workloads, pool, workload

Body = dict[str, Any]
Send = Callable[[], Awaitable[Body]]
Way = Callable[[str, str, Send], Awaitable[Body]]


class Disturbed(Cluster):
    """A way to the API server that a test may lead elsewhere."""

    way: Way = staticmethod(lambda _method, _path, send: send())

    async def request(
        self, method: str, path: str, body: Any = None, kind: str = JSON, accept: str = JSON
    ) -> Body:
        def send() -> Awaitable[Body]:
            return super(Disturbed, self).request(method, path, body, kind, accept)

        return await self.way(method, path, send)


class Ground:
    """The loop, and what it stands on; a watch there is none, so a test tells of pools itself."""

    def __init__(self, stage: Stage, redis: Redis, client: StockClient) -> None:
        self.stage = stage
        self.cluster = Disturbed(kopf.OperatorSettings())
        self.client = client
        self.leads = True
        self.workloads = Workloads(stage.resources)
        self._queues = Store(redis, PREFIX).queues
        self._start()

    def _start(self) -> None:
        self.pools = Pools(self.cluster, self._queues, lambda: self.leads)
        self._loop = asyncio.create_task(self.pools.run())

    def is_loop(self) -> bool:
        """Say whether it is the loop itself that asks, and no task of one pool."""
        return asyncio.current_task() is self._loop

    async def stop(self) -> None:
        self._loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._loop

    async def restart(self) -> None:
        """Begin anew, and know of no pool."""
        await self.stop()
        self._start()

    async def make(self, name: str, replicas: int = 0, **spec: Any) -> Body:
        """Make a workload and a pool of the queue of its name, and tell nobody."""
        await self.tries(self.workloads.apply, workload(name, replicas), pool(name, name, **spec))
        body: Body = await self.tries(self.workloads.get, "workerpool", name)
        return body

    async def apply(self, name: str, replicas: int = 0, **spec: Any) -> Body:
        """Make them, and tell of the pool."""
        await self.make(name, replicas, **spec)
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
