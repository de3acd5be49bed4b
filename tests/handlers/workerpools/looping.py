"""The controller of WorkerPools inside a test process, with a real API server."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import kopf
from redis.asyncio import Redis

from handlers.kube.client import JSON, ApiClient
from handlers.kube.refs import ref_of
from handlers.kube.workqueue import WorkQueue
from handlers.workerpools.controller import PoolController
from handlers.workerpools.scaler import Scaler
from handlers.workerpools.targets import Targets
from handlers.workerpools.worker_check import WorkerCheck
from jobgroup import Store
from testbed.servers.stock import StockClient
from testbed.support.stages import PREFIX, Stage
from testbed.support.workloads import Workloads, pool, workload

Body = dict[str, Any]
Send = Callable[[], Awaitable[Body]]
Way = Callable[[str, str, Send], Awaitable[Body]]


class Disturbed(ApiClient):
    """An API client whose requests a test can intercept."""

    way: Way = staticmethod(lambda _method, _path, send: send())

    async def request(
        self, method: str, path: str, body: Any = None, kind: str = JSON, accept: str = JSON
    ) -> Body:
        def send() -> Awaitable[Body]:
            return super(Disturbed, self).request(method, path, body, kind, accept)

        return await self.way(method, path, send)


class Ground:
    """The controller and its servers; there is no watch, so a test passes the events itself."""

    def __init__(self, stage: Stage, redis: Redis, client: StockClient) -> None:
        self.stage = stage
        self.api = Disturbed(kopf.OperatorSettings())
        self.client = client
        self.is_leader = True
        self.workloads = Workloads(stage.resources)
        self._queues = Store(redis, PREFIX).queues
        self._start()

    def _start(self) -> None:
        scaler = Scaler(self.api, self._queues, Targets(self.api), lambda: self.is_leader)
        check = WorkerCheck(self._queues, PREFIX)
        self.pools = PoolController(self.api, self._queues, WorkQueue(), scaler, check)
        self._loop = asyncio.create_task(self.pools.run())

    def is_loop(self) -> bool:
        """Return whether the caller runs in the controller's loop, not in a worker."""
        return asyncio.current_task() is self._loop

    async def stop(self) -> None:
        self._loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._loop

    async def restart(self) -> None:
        """Start a new controller that knows no pool."""
        await self.stop()
        self._start()

    async def make(self, name: str, replicas: int = 0, **spec: Any) -> Body:
        """Create a workload and a pool whose queue has the same name, without a watch event."""
        await self.in_thread(
            self.workloads.apply, workload(name, replicas), pool(name, name, **spec)
        )
        body: Body = await self.in_thread(self.workloads.get, "WorkerPool", name)
        return body

    async def apply(self, name: str, replicas: int = 0, **spec: Any) -> Body:
        """Create them, and pass the watch event of the pool."""
        await self.make(name, replicas, **spec)
        return await self.enqueue(name)

    async def delete(self, name: str) -> None:
        """Delete a pool without a watch event."""
        await self.in_thread(self.workloads.resources.kubectl, "delete", "workerpool", name)

    async def knows_none(self) -> bool:
        return self.pools.statuses() == []

    async def enqueue(self, name: str) -> Body:
        body: Body = await self.in_thread(self.workloads.get, "WorkerPool", name)
        self.pools.enqueue(ref_of(body), body)
        return body

    async def in_thread(self, what: Callable[..., Any], *arguments: Any) -> Any:
        """Run a blocking function in a thread."""
        return await asyncio.to_thread(what, *arguments)

    async def scales_to(self, name: str, replicas: int) -> None:
        await self.in_thread(self.workloads.scales_to, name, replicas)

    async def settles(self, name: str) -> None:
        await self.in_thread(self.workloads.settles, name)

    async def says(self, name: str, kind: str, status: str, reason: str) -> str:
        return str(await self.in_thread(self.workloads.says, name, kind, status, reason))
