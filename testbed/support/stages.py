"""A stage for tests that break things: its own operator replicas, Redis and workers.

No other operator may watch the API server. Each replica has its own log.
"""

import asyncio
import json
import secrets
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from redis import Redis

from jobgroup.resource.kinds import API_VERSION, JOBGROUP, WORKERPOOL
from testbed.servers.apiserver import OPERATOR_NAMESPACE, ApiServer
from testbed.servers.operator import MAIN, OperatorProcess, start_operator
from testbed.servers.redis import RedisServer
from testbed.servers.stock import Behaviour, StockClient, fails_for_good, hangs, returns
from testbed.support.resources import Resources, namespace_named
from testbed.support.sagas import job, undo

if TYPE_CHECKING:
    from testbed.support.user import User

PREFIX = "bull"
NO_FINALIZERS = {"metadata": {"finalizers": None}}

# An order of two jobs; the first can be undone. The name of a job defines what a worker does.
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
# In the same queue: it runs after the other, so that there is a completed job to undo.
LOSE = job("lose")
WAIT = job("wait", "waiting")


def lease_rights(lease: str) -> list[dict[str, Any]]:
    """Return the role and binding that let the operator use a lease of another name."""
    group = "rbac.authorization.k8s.io"
    head = {
        "apiVersion": f"{group}/v1",
        "metadata": {"name": lease, "namespace": OPERATOR_NAMESPACE},
    }
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [lease],
        "verbs": ["get", "update"],
    }
    who = f"system:serviceaccounts:{OPERATOR_NAMESPACE}"
    return [
        {**head, "kind": "Role", "rules": [rule]},
        {
            **head,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": group, "kind": "Role", "name": lease},
            "subjects": [{"kind": "Group", "apiGroup": group, "name": who}],
        },
    ]


class Stage:
    """The servers and processes of one test."""

    def __init__(self, folder: Path, api: ApiServer, persistent: bool = False) -> None:
        self.api = api
        self.redis = RedisServer(folder, persistent)
        self.store = Redis.from_url(self.redis.url, decode_responses=True)
        self.namespace = f"test-{secrets.token_hex(4)}"
        self.lease = f"lease-{self.namespace}"
        self.replicas: list[OperatorProcess] = []
        api.user.create(namespace_named(self.namespace))
        # Its own lease: one of an earlier test may still have a killed holder.
        api.user.create(*lease_rights(self.lease))
        self.resources = Resources(api, self.namespace)
        self._folder = folder
        self._stack = AsyncExitStack()

    def operator(
        self,
        name: str = "operator",
        kubeconfig: Path | None = None,
        script: Path = MAIN,
        **env: str,
    ) -> OperatorProcess:
        """Start a replica."""
        env = {"LEASE_NAME": self.lease, "REDIS_URL": self.redis.url, **env}
        identity = kubeconfig or self.api.operator
        redis_url = env.pop("REDIS_URL")
        replica = start_operator(self._folder, identity, redis_url, PREFIX, name, script, **env)
        self.replicas.append(replica)
        return replica

    async def client(self, flavour: str = "bullmq6", own: bool = False) -> StockClient:
        """Start a client without workers."""
        return await self._stack.enter_async_context(
            await StockClient.start(flavour, self.redis.url, PREFIX, own)
        )

    async def worker(
        self, more: Mapping[str, Behaviour] | None = None, own: bool = False, **settings: Any
    ) -> StockClient:
        """Start a client with workers for the order's queues and its undos."""
        client = await self.client(own=own)
        for queue in QUEUES:
            many = {"concurrency": 100} if queue == "waiting" else {}
            await client.work(queue, {**BEHAVIOUR, **(more or {})}, **{**many, **settings})
        return client

    async def runs(self, worker: StockClient, **fields: str) -> int:
        """Return how often a worker has started such a job so far."""
        await worker.manage("payments", "count")
        return worker.count("started", **fields)

    async def send(self, method: str, what: list[tuple[str, Mapping[str, Any]]]) -> None:
        """Send many requests about JobGroups at once, which kubectl cannot."""
        config = json.loads(self.api.admin.read_text())
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {
            "Authorization": f"Bearer {config['users'][0]['user']['token']}",
            "Content-Type": kind,
        }
        base = f"/apis/{API_VERSION}/namespaces/{self.namespace}/{JOBGROUP.plural}"
        trust = ssl.create_default_context(cafile=str(self.api.certificate))
        connector = aiohttp.TCPConnector(limit=20, ssl=trust)
        async with aiohttp.ClientSession(
            self.api.url, connector=connector, headers=headers
        ) as session:

            async def one(path: str, body: Mapping[str, Any]) -> None:
                async with session.request(method, base + path, json=body) as answer:
                    assert answer.status < 300 or answer.status == 404, await answer.text()

            await asyncio.gather(*(one(path, body) for path, body in what))
            # Otherwise TLS connections are closed in the background.
            await connector.close(abort_ssl=True)

    def namespace_exists(self) -> bool:
        """Return whether the namespace of the test exists."""
        return self.api.user.get("Namespace", self.namespace) is not None

    def lease_spec(self) -> dict[str, Any]:
        """Return the spec of the lease."""
        found = self._leases.get("Lease", self.lease)
        assert found, "there is no lease"
        return dict(found["spec"])

    def free_lease(self) -> None:
        """Delete the lease of a dead replica, instead of waiting until it expires."""
        assert self._leases.get("Lease", self.lease), "there is no lease"
        self._leases.delete("Lease", self.lease)

    @property
    def _leases(self) -> "User":
        return self.api.user.within(OPERATOR_NAMESPACE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop all processes and delete all objects, so that the next operator finds none."""
        for replica in self.replicas:
            replica.server.kill()
        await self._stack.aclose()
        self.store.close()
        self.redis.stop()
        if not self.namespace_exists():
            return
        user = self.resources.user
        names = [group["metadata"]["name"] for group in user.find(JOBGROUP.name)]
        await self.send("PATCH", [(f"/{name}", NO_FINALIZERS) for name in names])
        user.delete_all(WORKERPOOL.name)
        user.delete_all(JOBGROUP.name)
        user.delete("Namespace", self.namespace)
