"""pytest fixtures for real servers and clients; a conftest loads them with `pytest_plugins`.

redis_url, redis   a private Redis for the session, or the one that REDIS_URL names
prefix             a key prefix for this test; the test fails if it leaves keys behind
queue              names a queue whose stock BullMQ keys are deleted after the test
stock              starts stock clients of one flavour; the test runs once for each of the three
sagas              the groups of this test, with a running driver
api                a Kubernetes API server, shared by the session
namespace          a namespace for this test
jobgroup_crd       the API server with the CRDs installed
shop               the parts of the demo, emptied after each test
"""

import os
import secrets
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from testbed.build.helm import find_helm
from testbed.build.toolchain import node, npm
from testbed.demo.parts import Parts, started
from testbed.servers.apiserver import ApiServer
from testbed.servers.redis import RedisServer, find_redis
from testbed.servers.stock import FLAVOURS, StockClient
from testbed.support.resources import install_crds, namespace_named
from testbed.support.sagas import Sagas, stage

QueueNamer = Callable[[str], str]
ClientStarter = Callable[..., Awaitable[StockClient]]


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a Redis: REDIS_URL if set, else of one started for this session."""
    if given := os.environ.get("REDIS_URL"):
        yield given
        return
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture
def prefix(redis_url: str) -> Iterator[str]:
    """Return a prefix for the keys of a test, and fail the test if it leaves keys behind.

    A private server must be empty afterwards. On the server that REDIS_URL names there are other
    keys, so only those with the prefix count.
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
    """Name a queue; BullMQ's own keys of it are deleted afterwards, the keys of groups are not."""
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
    """Return a client; it requires `prefix`, so that leftover keys are always found."""
    client: AsyncRedis = AsyncRedis.from_url(redis_url, decode_responses=True)
    async with client:
        yield client


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    """Return each flavour of stock client, one after the other."""
    return str(request.param)


@pytest.fixture
async def start_client(
    redis_url: str, prefix: str, queue: QueueNamer
) -> AsyncIterator[ClientStarter]:
    """Start stock clients of any flavour; all end with the test."""
    clients: list[StockClient] = []

    async def start(flavour: str, own: bool = False) -> StockClient:
        client = await StockClient.start(flavour, redis_url, prefix, own)
        clients.append(client)
        return client

    yield start
    for client in clients:
        await client.end()


@pytest.fixture
def stock(flavour: str, start_client: ClientStarter) -> ClientStarter:
    """Start stock clients of one flavour; pytest runs the test once for each flavour."""

    async def start(own: bool = False) -> StockClient:
        return await start_client(flavour, own)

    return start


@pytest.fixture
async def sagas(redis_url: str, prefix: str) -> AsyncIterator[Sagas]:
    """Run a driver for the test's groups; remove the groups afterwards."""
    async with stage(redis_url, prefix) as sagas:
        yield sagas


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Start etcd and kube-apiserver once for the session."""
    with ApiServer(tmp_path_factory.mktemp("apiserver")) as server:
        yield server


@pytest.fixture
def namespace(api: ApiServer) -> Iterator[str]:
    """Create a namespace for this test."""
    name = f"test-{secrets.token_hex(4)}"
    api.user.create(namespace_named(name))
    yield name
    # Without controllers it stays Terminating; its name is never used again.
    api.user.delete("Namespace", name)


@pytest.fixture(scope="session")
def jobgroup_crd(api: ApiServer) -> ApiServer:
    """Install the CRDs of deploy/crds/, once for the session."""
    install_crds(api)
    return api


@pytest.fixture(scope="session")
def open_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """Start the parts of the demo once for the session, with workers that take no time."""
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
    """Return the parts of the demo, and empty them after each test."""
    yield open_shop
    user = open_shop.api.user
    for group in user.find("JobGroup"):
        user.patch("JobGroup", group["metadata"]["name"], {"spec": {"deletionPolicy": "Orphan"}})
    for kind in ("JobGroup", "WorkerPool", "Deployment"):
        user.delete_all(kind)
        user.wait_gone(kind)
    with Redis.from_url(open_shop.redis.url) as redis:
        redis.flushall()
