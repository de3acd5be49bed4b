"""A stage for tests that break things: replicas of the operator, a Redis and workers of one's own.

The API server must be one that no other operator looks at. Each replica has a log of its own, so
what it said can be told from what the others said.
"""

import asyncio
import json
import secrets
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from redis import Redis

from testbed.apiserver import OPERATOR_NAMESPACE, ApiServer
from testbed.operators import MAIN, OperatorProcess, start_operator
from testbed.redis_server import RedisServer
from testbed.resources import FOLDERS, Resources
from testbed.sagas import job, undo
from testbed.stock import Behaviour, StockClient, fails_for_good, hangs, returns

PREFIX = "bull"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases"
NO_FINALIZERS = {"metadata": {"finalizers": None}}

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


def lease_rights(lease: str) -> list[dict[str, Any]]:
    """Return what lets whoever is at home where the operator is take a lease of another name."""
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
    """What one test stands on."""

    def __init__(self, folder: Path, api: ApiServer, persistent: bool = False) -> None:
        self.api = api
        self.redis = RedisServer(folder, persistent)
        self.store = Redis.from_url(self.redis.url, decode_responses=True)
        self.namespace = f"test-{secrets.token_hex(4)}"
        self.lease = f"lease-{self.namespace}"
        self.replicas: list[OperatorProcess] = []
        api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        # A lease of its own keeps a test apart from one that killed a leader before.
        rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}"
        for each in lease_rights(self.lease):
            api.ask("POST", f"{rights}/{each['kind'].lower()}s", each)
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

    async def client(self, flavour: str = "bullmq6") -> StockClient:
        """Start a client that does nothing unless it is told to."""
        return await self._stack.enter_async_context(
            await StockClient.start(flavour, self.redis.url, PREFIX)
        )

    async def worker(
        self, more: Mapping[str, Behaviour] | None = None, **settings: Any
    ) -> StockClient:
        """Start a client that works on the order's queues and on the undos."""
        client = await self.client()
        for queue in QUEUES:
            many = {"concurrency": 100} if queue == "waiting" else {}
            await client.work(queue, {**BEHAVIOUR, **(more or {})}, **{**many, **settings})
        return client

    async def runs(self, worker: StockClient, **fields: str) -> int:
        """Count how often a worker began such a job; waits until it has told all it did so far."""
        await worker.manage("payments", "count")
        return worker.count("started", **fields)

    async def send(self, method: str, what: list[tuple[str, Mapping[str, Any]]]) -> None:
        """Send many requests about JobGroups at once; kubectl takes its time between them."""
        config = json.loads(self.api.admin.read_text())
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {
            "Authorization": f"Bearer {config['users'][0]['user']['token']}",
            "Content-Type": kind,
        }
        base = FOLDERS["jobgroup"].format(self.namespace)
        trust = ssl.create_default_context(cafile=str(self.api.certificate))
        connector = aiohttp.TCPConnector(limit=20, ssl=trust)
        async with aiohttp.ClientSession(
            self.api.url, connector=connector, headers=headers
        ) as session:

            async def one(path: str, body: Mapping[str, Any]) -> None:
                async with session.request(method, base + path, json=body) as answer:
                    assert answer.status < 300 or answer.status == 404, await answer.text()

            await asyncio.gather(*(one(path, body) for path, body in what))
            # TLS is taken leave of in the background.
            await connector.close(abort_ssl=True)

    def namespace_exists(self) -> bool:
        """Say whether the test's namespace is still there."""
        return self.api.ask("GET", f"/api/v1/namespaces/{self.namespace}") is not None

    def lease_spec(self) -> dict[str, Any]:
        """Return what the lease says."""
        found = self.api.ask("GET", self._lease_path)
        assert found, "there is no lease"
        return dict(found["spec"])

    def free_lease(self) -> None:
        """Take the lease from a replica that is dead, instead of waiting until it runs out."""
        freed = self.api.ask("DELETE", self._lease_path)
        assert freed, "there is no lease"

    @property
    def _lease_path(self) -> str:
        return f"{LEASES}/{self.lease}"

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
        self.store.close()
        self.redis.stop()
        if not self.namespace_exists():
            return
        pools, groups = (
            FOLDERS[kind].format(self.namespace) for kind in ("workerpool", "jobgroup")
        )
        left = self.api.ask("GET", groups) or {"items": []}
        names = [item["metadata"]["name"] for item in left["items"]]
        await self.send("PATCH", [(f"/{name}", NO_FINALIZERS) for name in names])
        for path in (pools, groups, f"/api/v1/namespaces/{self.namespace}"):
            self.api.ask("DELETE", path)
