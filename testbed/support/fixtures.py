"""pytest fixtures for real servers and clients; a conftest loads them with `pytest_plugins`.

access             a private Redis for the session: that of REDIS_URL, or of the kind REDIS_KIND
redis_url          its URL for what the project does: only with an ACL the next two differ
admin_url, redis   its URL for the test itself, and a client
worker_url         its URL for stock clients
operator_redis     a client of the project
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

from jobgroup import connect
from testbed.build.helm import find_helm
from testbed.build.toolchain import node, npm
from testbed.demo.parts import Parts, started
from testbed.servers.access import IGNORED, Access
from testbed.servers.apiserver import ApiServer
from testbed.servers.redis import RedisServer, find_redis
from testbed.servers.redis_kinds import access_to, master_of, masters, prefix_for, start_kind
from testbed.servers.stock import FLAVOURS, StockClient
from testbed.support.resources import install_crds, namespace_named
from testbed.support.sagas import Sagas, stage

QueueNamer = Callable[[str], str]
ClientStarter = Callable[..., Awaitable[StockClient]]


@pytest.fixture(scope="session")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Access]:
    """Return the URLs of a Redis: REDIS_URL if set, else of one started for this session."""
    if given := os.environ.get("REDIS_URL"):
        yield Access.open(given)
        return
    folder = tmp_path_factory.mktemp("redis")
    kind = os.environ.get("REDIS_KIND", "")
    with start_kind(kind, folder) if kind else RedisServer(folder) as servers:
        yield access_to(servers, kind)


@pytest.fixture(scope="session")
def redis_url(access: Access) -> str:
    return access.url


@pytest.fixture(scope="session")
def admin_url(access: Access) -> str:
    return access.admin_url


@pytest.fixture(scope="session")
def worker_url(access: Access) -> str:
    return access.worker_url


@pytest.fixture
def prefix(access: Access, admin_url: str) -> Iterator[str]:
    """Return a prefix for the keys of a test, and fail the test if it leaves keys behind.

    With an ACL, the users may use only these keys, and no command of the test may be refused.

    A private server must be empty afterwards. On the server that REDIS_URL names there are other
    keys, so only those with the prefix count.
    """
    mine = prefix_for(admin_url, f"test-{secrets.token_hex(4)}")
    access.grant(mine)
    yield mine
    denials = [each for each in access.denials() if not each.endswith(IGNORED)]
    scope = f"{mine}*" if os.environ.get("REDIS_URL") else "*"
    leaked = []
    for url in masters(admin_url):
        with Redis.from_url(url, decode_responses=True) as redis:
            for key in redis.scan_iter(scope, count=1000):
                redis.delete(key)
                leaked.append(key)
    if leaked:
        pytest.fail(f"the test left {len(leaked)} keys behind: {', '.join(sorted(leaked)[:20])}")
    if denials:
        pytest.fail(f"Redis refused commands: {', '.join(denials)}")


@pytest.fixture
def queue(admin_url: str, prefix: str) -> Iterator[QueueNamer]:
    """Name a queue; BullMQ's own keys of it are deleted afterwards, the keys of groups are not."""
    named: set[str] = set()

    def name(queue: str) -> str:
        named.add(queue)
        return queue

    yield name
    with Redis.from_url(master_of(admin_url, prefix), decode_responses=True) as redis:
        for queue in named:
            for key in redis.scan_iter(f"{prefix}:{queue}:*", count=1000):
                if not key.startswith(f"{prefix}:{queue}:groups"):
                    redis.delete(key)


@pytest.fixture
async def redis(admin_url: str, prefix: str) -> AsyncIterator[AsyncRedis]:
    """Return a client; it requires `prefix`, so that leftover keys are always found."""
    async with connect(admin_url, prefix) as client:
        yield client


@pytest.fixture
async def operator_redis(access: Access, redis_url: str, prefix: str) -> AsyncIterator[AsyncRedis]:
    """Return a client for a Store: with an ACL, it has the rights of the operator."""
    access.grant(prefix)  # a test may have a prefix of its own
    async with connect(redis_url, prefix) as client:
        yield client


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    """Return each flavour of stock client, one after the other."""
    return str(request.param)


@pytest.fixture
async def start_client(
    worker_url: str, prefix: str, queue: QueueNamer
) -> AsyncIterator[ClientStarter]:
    """Start stock clients of any flavour; all end with the test."""
    clients: list[StockClient] = []

    async def start(flavour: str, own: bool = False) -> StockClient:
        client = await StockClient.start(flavour, worker_url, prefix, own)
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
async def sagas(redis_url: str, admin_url: str, prefix: str) -> AsyncIterator[Sagas]:
    """Run a driver for the test's groups; remove the groups afterwards."""
    async with stage(redis_url, prefix, admin_url) as sagas:
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
    for kind in ("JobGroup", "WorkerPool", "Deployment", "Secret"):
        user.delete_all(kind)
        user.wait_gone(kind)
    with Redis.from_url(open_shop.redis.url) as redis:
        redis.flushall()
