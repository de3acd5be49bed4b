"""A stage apart: an API server with controllers, a Redis, operators and workers of a test's own."""

import secrets
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from redis import Redis

from testbed.apiserver import ApiServer, KubectlError
from testbed.operators import OperatorProcess, operator_running
from testbed.redis_server import RedisServer
from testbed.resources import Resources
from testbed.stock import StockClient


class Island:
    """What one test stands on, and may harm."""

    def __init__(self, folder: Path, api: ApiServer, prefix: str) -> None:
        self.api = api
        self.redis = RedisServer(folder)
        self.store = Redis.from_url(self.redis.url, decode_responses=True)
        self.resources = Resources(api, f"test-{secrets.token_hex(4)}")
        api.kubectl("create", "namespace", self.resources.namespace)
        self._folder = folder
        self._prefix = prefix
        self._clients: list[StockClient] = []

    def operator(self, redis_url: str = "") -> AbstractContextManager[OperatorProcess]:
        """Run an operator for as long as a block, on the island's Redis or on another."""
        url = redis_url or self.redis.url
        return operator_running(self._folder, self.api.operator, url, self._prefix)

    async def worker(self, flavour: str = "bullmq6") -> StockClient:
        """Start a stock client."""
        client = await StockClient.start(flavour, self.redis.url, self._prefix)
        self._clients.append(client)
        return client

    def namespace_exists(self) -> bool:
        """Say whether the test's namespace is still there."""
        try:
            self.api.kubectl("get", "namespace", self.resources.namespace)
        except KubectlError as error:
            if "NotFound" in str(error):
                return False
            raise
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing that the operator of the next test would look at."""
        self.store.close()
        for client in self._clients:
            await client.kill()
        self.redis.stop()
        if self.namespace_exists():
            for name in self.resources.kubectl("get", "jobgroups", "-o", "name").split():
                self.resources.kubectl("patch", name, "--type=merge", "-p", NO_FINALIZERS)
            # The namespace stays: what empties it would be counted among the next test's requests.
            self.resources.kubectl("delete", "jobgroups", "--all")


NO_FINALIZERS = '{"metadata": {"finalizers": null}}'
