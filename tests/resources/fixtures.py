"""Fixtures of the operator's tests: one operator for all tests that do not break it.

shared      an API server, a Redis and an operator, for the whole session
resources   JobGroups in a namespace of this test's own, reconciled by the shared operator
worker      starts stock clients on the shared Redis
quiet_api   an API server that the shared operator does not watch
kubectl     kubectl in a namespace of this test's own on that server
stage       operators, a Redis and workers for a test that breaks them, on that server
proxy       between an operator and that server, to disturb their connections
island      the same on an API server with controllers
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from testbed.servers.apiserver import ApiServer
from testbed.servers.operator import OperatorProcess, measuring_coverage, start_operator
from testbed.servers.proxy import Proxy
from testbed.servers.redis import RedisServer
from testbed.servers.stock import StockClient
from testbed.support.resources import Resources, install_crds
from testbed.support.stages import Stage
from tests.resources.admission.applied import Kubectl

PREFIX = "bull"


@dataclass(frozen=True)
class Shared:
    """The servers and the operator that these tests share."""

    api: ApiServer
    redis: RedisServer
    operator: OperatorProcess


@pytest.fixture(scope="session")
def shared(jobgroup_crd: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("shared-operator")
    with (
        RedisServer(folder) as redis,
        start_operator(
            folder, jobgroup_crd.operator, redis.url, PREFIX, **measuring_coverage()
        ) as operator,
    ):
        yield Shared(jobgroup_crd, redis, operator)


@pytest.fixture
def resources(shared: Shared, namespace: str) -> Resources:
    return Resources(shared.api, namespace)


@pytest.fixture
def store(shared: Shared) -> Iterator[Redis]:
    with Redis.from_url(shared.redis.url, decode_responses=True) as client:
        yield client


@pytest.fixture
async def worker(shared: Shared) -> AsyncIterator[Callable[..., Awaitable[StockClient]]]:
    """Start stock clients, and end them after the test."""
    clients: list[StockClient] = []

    async def start(flavour: str = "bullmq6", own: bool = False) -> StockClient:
        client = await StockClient.start(flavour, shared.redis.url, PREFIX, own)
        clients.append(client)
        return client

    yield start
    for client in clients:
        await client.end()


@pytest.fixture(scope="session")
def quiet_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("quiet-apiserver")) as api:
        install_crds(api)
        yield api


@pytest.fixture
def kubectl(quiet_api: ApiServer) -> Iterator[Kubectl]:
    with Kubectl(quiet_api) as kubectl:
        yield kubectl


@pytest.fixture
async def stage(quiet_api: ApiServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with Stage(tmp_path, quiet_api) as stage:
        yield stage


@pytest.fixture
def proxy(quiet_api: ApiServer) -> Iterator[Proxy]:
    with Proxy(quiet_api) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def island_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("island"), controllers=True) as api:
        install_crds(api)
        yield api


@pytest.fixture
async def island(island_api: ApiServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with Stage(tmp_path, island_api) as stage:
        yield stage
