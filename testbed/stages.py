"""A stage for tests that break things: replicas of the operator, a Redis and workers of one's own.

The API server must be one that no other operator looks at. Each replica has a log of its own, so
what it said can be told from what the others said.
"""

import json
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.apiserver import OPERATOR_NAMESPACE, ApiServer
from testbed.operators import OperatorProcess, start_operator
from testbed.redis_server import RedisServer
from testbed.resources import Resources
from testbed.sagas import job, undo
from testbed.stock import Behaviour, StockClient, fails_for_good, hangs, returns

PREFIX = "bull"

# An order of two jobs, of which the first can be undone. Workers do what a job's name says.
BEHAVIOUR: dict[str, Behaviour] = {
    "pay": returns({"receipt": 1}),
    "ship": returns(None),
    "lose": fails_for_good("out of stock"),
    "wait": hangs(),
    "refund": returns(None),
}
QUEUES = (
    "payments",
    "shipping",
    "waiting",
    "payments:compensation",
    "shipping:compensation",
)
UNDOS = {"pay": undo("refund")}
PAY = job("pay")
SHIP = job("ship", "shipping")
# In the same queue: it is run after the other, so that there is something to undo.
LOSE = job("lose")
WAIT = job("wait", "waiting")


class Stage:
    """What one test stands on."""

    def __init__(self, folder: Path, api: ApiServer, persistent: bool = False) -> None:
        self.api = api
        self.redis = RedisServer(folder, persistent)
        self.namespace = f"test-{secrets.token_hex(4)}"
        self.lease = f"lease-{self.namespace}"
        self.replicas: list[OperatorProcess] = []
        api.kubectl("create", "namespace", self.namespace)
        self.resources = Resources(api, self.namespace)
        self._folder = folder
        self._stack = AsyncExitStack()

    def operator(
        self, name: str = "operator", kubeconfig: Path | None = None, **env: str
    ) -> OperatorProcess:
        """Start a replica."""
        env = {"LEASE_NAME": self.lease, "REDIS_URL": self.redis.url, **env}
        identity = kubeconfig or self.api.operator
        replica = start_operator(self._folder, identity, env.pop("REDIS_URL"), PREFIX, name, **env)
        self.replicas.append(replica)
        return replica

    async def worker(
        self, more: Mapping[str, Behaviour] | None = None, **settings: Any
    ) -> StockClient:
        """Start a client that works on the order's queues and on the undos."""
        client = await self._stack.enter_async_context(
            await StockClient.start("bullmq6", self.redis.url, PREFIX)
        )
        for queue in QUEUES:
            many = {"concurrency": 100} if queue == "waiting" else {}
            await client.work(queue, {**BEHAVIOUR, **(more or {})}, **{**many, **settings})
        return client

    async def runs(self, worker: StockClient, **fields: str) -> int:
        """Count how often a worker began such a job; waits until it has told all it did so far."""
        await worker.manage("payments", "count")
        return worker.count("started", **fields)

    def lease_spec(self) -> dict[str, Any]:
        """Return what the lease says."""
        found = self.api.kubectl("get", "lease", self.lease, "-n", OPERATOR_NAMESPACE, "-o", "json")
        return dict(json.loads(found)["spec"])

    def free_lease(self) -> None:
        """Take the lease from a replica that is dead, instead of waiting until it runs out."""
        self.api.kubectl("delete", "lease", self.lease, "-n", OPERATOR_NAMESPACE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all processes and remove what is left, so that the next operator finds nothing."""
        for replica in self.replicas:
            replica.server.kill()
        await self._stack.aclose()
        self.redis.stop()
        if left := self.resources.kubectl("get", "jobgroups", "-o", "name").split():
            self.resources.kubectl("patch", *left, "--type=merge", "-p", NO_FINALIZERS)
        self.resources.kubectl("delete", "jobgroups", "--all", "--wait=false")
        self.api.kubectl("delete", "namespace", self.namespace, "--wait=false")


NO_FINALIZERS = '{"metadata": {"finalizers": null}}'
