"""Clients of Sentinel and of a Cluster follow the data of their prefix to another server."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobgroup import Driver, GroupNode, JobGroups
from jobgroup.store.connection import RedisError, is_transient
from testbed.servers.redis import RedisServer
from testbed.servers.redis_cluster import ClusterServers
from testbed.servers.redis_sentinel import Sentinel, SentinelServers
from testbed.support.sagas import reached
from testbed.support.waiting import eventually

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        shutil.which("apt-get") is None, reason="this Redis is in packages of Debian"
    ),
]

PREFIX = "{bull}"
JOBS = [{"name": "pay", "queueName": "payments"}]
CALLERS = 10
Servers = SentinelServers | ClusterServers


@pytest.fixture(params=[SentinelServers, ClusterServers])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Servers]:
    with request.param(tmp_path / "servers", persistent=True) as started:
        yield started


@asynccontextmanager
async def driven(servers: Servers) -> AsyncIterator[tuple[JobGroups, Driver]]:
    """Open a client with a driver; check that the driver survives, and that no task is left."""
    others = asyncio.all_tasks()
    async with JobGroups.connect(servers.url, PREFIX) as groups:
        errors: list[Exception] = []
        driver = Driver(groups.store, on_error=lambda _, error: errors.append(error))
        running = asyncio.create_task(driver.run())
        try:
            yield groups, driver
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.wait([running])
        assert all(map(is_transient, errors)), errors
    assert asyncio.all_tasks() == others


async def persist(call: Callable[[], Awaitable[Any]]) -> Any:
    """Call until Redis is available again."""
    found: list[Any] = []

    async def succeeds() -> bool:
        try:
            found.append(await call())
        except RedisError as error:
            if not is_transient(error):
                raise
            return False
        return True

    await eventually(succeeds)
    return found[0]


async def fail_a_job(groups: JobGroups, node: GroupNode) -> None:
    """Delete the only job of a group, so that a driver ends the group."""
    wait = f"{PREFIX}:payments:wait"
    job = node.jobs[0]
    await persist(lambda: groups.store.redis.lrem(wait, 0, job.job_id))
    await persist(lambda: groups.store.redis.delete(job.job_key))


async def test_sagas_move_on_after_a_failover(servers: Servers) -> None:
    async with driven(servers) as (groups, _):
        for act in ("kill", "fail over", "freeze"):
            old = servers.master(PREFIX)
            node = await groups.add_group("order", JOBS)
            if act == "fail over":
                await asyncio.to_thread(servers.fail_over, PREFIX)
            else:
                old.call("WAIT", 1, 0)
                (old.kill if act == "kill" else old.freeze)()
            await asyncio.to_thread(servers.wait_for_another_master, old, PREFIX)
            await fail_a_job(groups, node)
            await reached(groups.store, node.group_id, state="FAILED")
            if act == "kill":
                servers.start_again(old)
            elif act == "freeze":
                old.thaw()
            await asyncio.to_thread(servers.wait_until_ready)


async def test_nothing_ends_while_all_servers_are_away(servers: Servers) -> None:
    async with driven(servers) as (groups, driver):
        node = await groups.add_group("order", JOBS)
        master = servers.master(PREFIX)
        waiting = asyncio.create_task(groups.wait_for_group(node.group_id, 100))
        nodes: list[RedisServer] = list(servers.nodes)
        for each in nodes:
            each.kill()
        failed = driver.counters.errors

        async def is_noticed() -> bool:
            return driver.counters.errors > failed

        await eventually(is_noticed)
        for each in sorted(nodes, key=lambda each: each is not master):
            each.start_again()
        await fail_a_job(groups, node)
        assert (await waiting).state == "FAILED"


async def test_idle_connections_do_not_stay_with_a_frozen_master(tmp_path: Path) -> None:
    with ClusterServers(tmp_path / "servers") as servers:
        async with JobGroups.connect(servers.url, PREFIX) as groups:
            changes = partial(groups.store.streams.changes, "owner", "0-0", 0.1)

            async def use_many() -> None:
                await asyncio.gather(*(changes() for _ in range(CALLERS)))

            await use_many()
            old = servers.master(PREFIX)
            old.call("WAIT", 1, 0)
            old.freeze()
            await asyncio.to_thread(servers.wait_for_another_master, old, PREFIX)
            # One call notices it, for all that begin later.
            await persist(groups.store.incarnation)
            await use_many()
            old.thaw()
            await asyncio.to_thread(servers.wait_until_ready)
            await use_many()


async def test_a_client_leaves_the_old_master_when_sentinels_announce_another(
    tmp_path: Path,
) -> None:
    # Sentinel demotes the old master no sooner than 8 seconds later. Until then, it takes writes.
    with SentinelServers(tmp_path / "servers") as servers:
        async with JobGroups.connect(f"{servers.url}?client_name=ours", PREFIX) as groups:
            await groups.add_group("order", JOBS)
            old = servers.master()
            await asyncio.to_thread(servers.fail_over)

            async def has_left() -> bool:
                return "name=ours" not in old.call("CLIENT", "LIST")

            await eventually(has_left)
            assert old.call("ROLE")[0] == "master"
            await persist(lambda: groups.add_group("order", JOBS))


async def test_a_master_without_enough_replicas_is_waited_out(servers: Servers) -> None:
    async with driven(servers) as (groups, driver):
        node = await groups.add_group("order", JOBS)
        master = servers.master(PREFIX)
        master.call("CONFIG", "SET", "min-replicas-to-write", 5)
        with pytest.raises(RedisError, match="NOREPLICAS") as raised:
            await groups.cancel_group(node.group_id)
        assert is_transient(raised.value)
        failed = driver.counters.errors

        async def is_noticed() -> bool:
            return driver.counters.errors > failed

        await eventually(is_noticed)
        master.call("CONFIG", "SET", "min-replicas-to-write", 0)
        assert (await persist(lambda: groups.cancel_group(node.group_id))).state == "FAILED"


async def test_a_master_stays_reachable_while_all_sentinels_are_away(tmp_path: Path) -> None:
    with SentinelServers(tmp_path / "servers") as servers:
        async with JobGroups.connect(servers.url, PREFIX) as groups:
            await groups.store.ping()
            master = servers.master()
            for sentinel in servers.sentinels:
                sentinel.kill()
            await groups.store.redis.connection_pool.disconnect()
            await groups.store.ping()
            # Only a master is, and not another server than that one.
            master.call("REPLICAOF", "127.0.0.1", 1)
            await groups.store.redis.connection_pool.disconnect()
            with pytest.raises(RedisError, match="is not promoted yet") as raised:
                await groups.store.ping()
            assert is_transient(raised.value)


async def test_a_sentinel_that_answers_nonsense_is_listened_to_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            writer.write(b"+\xff\r\n" * 3)
        writer.close()

    odd = await asyncio.start_server(answer, "127.0.0.1", 0)
    where = f"127.0.0.1:{odd.sockets[0].getsockname()[1]}"
    with SentinelServers(tmp_path / "servers") as servers:
        url = servers.url.replace("redis+sentinel://", f"redis+sentinel://{where},")
        async with JobGroups.connect(url, PREFIX) as groups:
            await groups.store.ping()

            async def is_logged() -> bool:
                return f"cannot listen to the sentinel {where}, retrying" in caplog.text

            await eventually(is_logged)
    odd.close()
    await odd.wait_closed()


@pytest.mark.parametrize(
    ("start", "scheme"),
    [(Sentinel, "redis+sentinel://{}/shop"), (RedisServer, "redis+cluster://{}")],
)
async def test_a_rejection_is_permanent_if_no_other_server_may_accept(
    tmp_path: Path, start: type[RedisServer], scheme: str
) -> None:
    with start(tmp_path / "redis", password="one") as server:  # noqa: S106
        for addresses, transient in ((server.address, False), (f"{server.address},[::1]:1", True)):
            async with JobGroups.connect(scheme.format(addresses), PREFIX) as groups:
                with pytest.raises(RedisError, match="Authentication required") as raised:
                    await groups.store.ping()
                assert is_transient(raised.value) is transient


@pytest.mark.parametrize("url", ["redis+sentinel://{}/other", "redis+cluster://{}"])
async def test_a_wrong_service_or_kind_is_named(tmp_path: Path, url: str) -> None:
    with SentinelServers(tmp_path / "servers") as servers:
        sentinels = ",".join(sentinel.address for sentinel in servers.sentinels)
        async with JobGroups.connect(url.format(sentinels), PREFIX) as groups:
            with pytest.raises(RedisError) as raised:
                await groups.store.ping()
    words = "no sentinel knows the master of other" if "sentinel:" in url else "no node of"
    assert str(raised.value).startswith(words)
