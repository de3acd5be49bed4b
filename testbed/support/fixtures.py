"""pytest fixtures for the real parts; a conftest takes them with `pytest_plugins`.

redis_url, redis   a Redis of the suite's own, or the one REDIS_URL names
prefix             a key prefix of this test's own; keys it leaves behind fail the test
queue              names a queue whose stock BullMQ keys go away after the test
stock              starts stock clients of one flavour; a test that takes it runs for all three
api                a Kubernetes API server, shared by the session
namespace          a namespace of this test's own
jobgroup_crd       the API server with JobGroups installed
shop               all that the demo runs on, as empty as at its start
"""

import json
import os
import secrets
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from testbed.apiserver import ApiServer
from testbed.demo.parts import Parts, started
from testbed.helm import find_helm
from testbed.redis_server import RedisServer, find_redis
from testbed.resources import install_crds
from testbed.stock import FLAVOURS, StockClient
from testbed.toolchain import node, npm

QueueNamer = Callable[[str], str]
ClientStarter = Callable[[], Awaitable[StockClient]]


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Name a Redis to use: REDIS_URL if set, else one started for this session."""
    if given := os.environ.get("REDIS_URL"):
        yield given
        return
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture
def prefix(redis_url: str) -> Iterator[str]:
    """Give the test a prefix for its keys, and fail it if any key is left at its end.

    A server of our own must be as empty afterwards as before. On a foreign one (REDIS_URL) other
    people's keys come and go, so only those under the prefix count.
    """
    mine = f"test-{secrets.token_hex(4)}"
    with Redis.from_url(redis_url, decode_responses=True) as redis:
        yield mine
        scope = f"{mine}*" if os.environ.get("REDIS_URL") else "*"
        leaked = sorted(redis.scan_iter(scope, count=1000))
        if leaked:
            redis.delete(*leaked)
            pytest.fail(f"the test left {len(leaked)} keys behind: {', '.join(leaked[:20])}")


@pytest.fixture
def queue(redis_url: str, prefix: str) -> Iterator[QueueNamer]:
    """Name a queue; what BullMQ itself keeps for it is removed afterwards, group keys are not."""
    named: set[str] = set()

    def name(queue: str) -> str:
        named.add(queue)
        return queue

    yield name
    with Redis.from_url(redis_url, decode_responses=True) as redis:
        for queue in named:
            for key in redis.scan_iter(f"{prefix}:{queue}:*", count=1000):
                if not key.startswith(f"{prefix}:{queue}:groups"):
                    redis.delete(key)


@pytest.fixture
async def redis(redis_url: str, prefix: str) -> AsyncIterator[AsyncRedis]:
    """Open a client; the test's prefix comes with it, so the key guard is always on."""
    client: AsyncRedis = AsyncRedis.from_url(redis_url, decode_responses=True)
    async with client:
        yield client


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    """Name one flavour of stock client after the other."""
    return str(request.param)


@pytest.fixture
async def start_client(
    redis_url: str, prefix: str, queue: QueueNamer
) -> AsyncIterator[Callable[[str], Awaitable[StockClient]]]:
    """Start stock clients of any flavour; none outlives the test."""
    clients: list[StockClient] = []

    async def start(flavour: str) -> StockClient:
        client = await StockClient.start(flavour, redis_url, prefix)
        clients.append(client)
        return client

    yield start
    for client in clients:
        await client.kill()


@pytest.fixture
def stock(flavour: str, start_client: Callable[[str], Awaitable[StockClient]]) -> ClientStarter:
    """Start stock clients of one flavour; pytest runs the test once for each."""

    async def start() -> StockClient:
        return await start_client(flavour)

    return start


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Start etcd and kube-apiserver once for the session."""
    with ApiServer(tmp_path_factory.mktemp("apiserver")) as server:
        yield server


@pytest.fixture
def namespace(api: ApiServer) -> Iterator[str]:
    """Make a namespace for this test."""
    name = f"test-{secrets.token_hex(4)}"
    api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    # Without controllers it stays in Terminating; its name is never used again.
    api.ask("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def jobgroup_crd(api: ApiServer) -> ApiServer:
    """Install the JobGroup resource, as deploy/crds/ has it, once for the session."""
    install_crds(api)
    return api


@pytest.fixture(scope="session")
def open_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """Start the parts of the demo once for the session, with workers that do not dawdle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORK_MS", "0")
        with started(tmp_path_factory.mktemp("shop"), lambda *_, **__: None) as parts:
            bin_folder = parts.folder / "bin"
            for tool in (find_redis().with_name("redis-cli"), find_helm(), node()):
                (bin_folder / tool.name).symlink_to(tool)
            (bin_folder / "npm").write_text(f'#!/bin/sh\nexec {shlex.join(npm())} "$@"\n')
            (bin_folder / "npm").chmod(0o755)
            yield parts


@pytest.fixture
def shop(open_shop: Parts) -> Iterator[Parts]:
    """Clear the parts of the demo after each test, however it ended."""
    yield open_shop
    kubectl = open_shop.api.kubectl
    running = {"spec": {"deletionPolicy": "Orphan"}}
    for name in kubectl("get", "jobgroups", "-o", "name").split():
        kubectl("patch", name, "--type=merge", "-p", json.dumps(running))
    kubectl("delete", "jobgroups,workerpools,deployments", "--all")
    with Redis.from_url(open_shop.redis.url) as redis:
        redis.flushall()
