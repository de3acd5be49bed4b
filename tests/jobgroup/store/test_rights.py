"""The users of docs/redis-in-production.md: they can do what the project does, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, ResponseError

from handlers.telemetry.redis_probe import RedisProbe
from jobgroup import Driver, JobGroups, Store
from jobgroup.model import names
from jobgroup.store.connection import connect, is_transient, lacks_right
from jobgroup.store.pool import TcpConnection
from jobgroup.store.rights import scripted
from jobgroup.store.sentinels import _CHANNELS, Sentinels
from testbed.servers.access import (
    IGNORED,
    OPERATOR,
    PREFIX,
    SENTINEL,
    Access,
    granted,
    login,
    password,
    restricted,
    rules,
)
from testbed.servers.redis import HERE, RedisServer
from testbed.servers.redis_cluster import SLOTS, ClusterNode
from testbed.servers.redis_sentinel import Sentinel
from testbed.support.sagas import job, undo
from testbed.support.waiting import eventually

pytestmark = pytest.mark.server


async def call_script(store: Store) -> None:
    await store.read("none")


async def set_aside(store: Store) -> None:
    await store.wakeups.set_aside("none")


async def wait(store: Store) -> None:
    await store.wakeups.wait_and_settle(0.01)


async def follow(store: Store) -> None:
    await store.streams.changes("cluster-1", "0-0", 0.01)


async def find_workers(store: Store) -> None:
    if await store.queues.connections() is None:
        raise NoPermissionError("the workers are unknown")


# What needs each command that no script calls.
DIRECT: dict[str, Callable[[Store], Awaitable[None]]] = {
    "ping": Store.ping,
    "evalsha": call_script,
    "script|load": call_script,
    "client|list": find_workers,
    "multi": set_aside,
    "exec": set_aside,
    "bzpopmin": wait,
    "xread": follow,
}
# They are tested below: with sentinels, and on a Redis Cluster.
OF_KINDS = {"role", "cluster|slots", "cluster|nodes"}


def test_exactly_the_commands_that_are_called_are_granted() -> None:
    called = {command.lower() for command in scripted()}
    assert granted(OPERATOR) == called | DIRECT.keys() | OF_KINDS


def test_the_users_see_only_the_keys_of_the_prefix_and_no_channel_but_those_of_failovers() -> None:
    scope = {rule for rule in rules(OPERATOR, "a*{b}") if rule[0] in "~%&"}
    assert scope == {"~a\\*{b}:*"}
    assert {rule[1:] for rule in rules(SENTINEL) if rule[0] == "&"} == set(_CHANNELS)
    for user in (OPERATOR, SENTINEL):
        assert rules(user)[:2] == ["reset", "on"]
        assert "resetchannels" in rules(user)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Start a Redis of the oldest version that is supported."""
    with RedisServer(tmp_path, version="6.2") as server:
        yield server


@pytest.fixture
def access(server: RedisServer) -> Access:
    return restricted(server)


def revoke(server: RedisServer, user: str, right: str) -> None:
    """Give a user the rights of the page without one."""
    kept = [rule for rule in rules(user) if rule != f"+{right}"]
    assert len(kept) == len(rules(user)) - 1
    server.call("ACL", "SETUSER", user, *kept)


@pytest.mark.parametrize("right", DIRECT)
async def test_each_command_of_a_client_is_needed(
    server: RedisServer, access: Access, right: str
) -> None:
    async with JobGroups.connect(access.url) as groups:
        await DIRECT[right](groups.store)
    if right == "script|load":
        server.call("SCRIPT", "FLUSH")
    revoke(server, OPERATOR, right)
    async with JobGroups.connect(access.url) as groups:
        # Of a transaction, redis-py raises what EXEC returned.
        with pytest.raises(ResponseError if right in ("multi", "exec") else NoPermissionError):
            await DIRECT[right](groups.store)
    where = "multi" if right == "exec" else "toplevel"
    assert f"jobgroup: command {right.partition('|')[0]} ({where})" in access.denials()


async def test_the_server_sees_only_granted_commands(server: RedisServer, access: Access) -> None:
    """All that a driver does by itself, and the life of a group; Redis 6.2 counts subcommands
    together.
    """
    server.call("CONFIG", "RESETSTAT")
    async with JobGroups.connect(access.url) as groups:
        driver = asyncio.create_task(Driver(groups.store, resync_seconds=0.01).run())
        node = await groups.add_group("order", [job("charge")], {"charge": undo("refund")})
        await groups.get_group_jobs(node.group_id)
        await groups.list_groups("ACTIVE")
        await groups.store.totals()
        await groups.store.queues.connections()
        await groups.cancel_group(node.group_id)
        await groups.remove_group(node.group_id)
        driver.cancel()
        with suppress(asyncio.CancelledError):
            await driver
    seen = {name.removeprefix("cmdstat_") for name in server.call("INFO", "commandstats")}
    administrator = {"acl", "config", "info"}
    allowed = {right.partition("|")[0] for right in granted(OPERATOR)}
    assert len(seen & allowed) > 25
    # A connection begins with HELLO, as the default user.
    assert seen - allowed - administrator == {"hello"}
    assert set(access.denials()) <= {f"{OPERATOR}{IGNORED[0]}"}


@pytest.mark.parametrize("version", ["6.2", "7.0", "8.0", "valkey-8.1"])
async def test_a_missing_right_is_an_error_of_redis_and_not_of_a_group(
    tmp_path: Path, version: str
) -> None:
    reported: list[tuple[str, str]] = []
    with RedisServer(tmp_path, version=version) as server:
        access = restricted(server)
        async with JobGroups.connect(access.url) as groups:
            await groups.add_group("order", [job("charge")], group_id="first")
            # Both ways in which scripts call commands: one ends the script, one is caught.
            for right in ("zcard", "hset"):
                revoke(server, OPERATOR, right)
                with pytest.raises(NoPermissionError) as refused:
                    await groups.add_group("order", [job("charge")], group_id="second")
                assert str(refused.value).startswith("the Redis user lacks a right: ")
                assert "ACL LOG on that server names the command or key" in str(refused.value)
                assert (f"'{right}' command" in str(refused.value)) is (version[0] in "8v")
                assert lacks_right(refused.value)
                assert not is_transient(refused.value)
                assert f"jobgroup: command {right} (lua)" in access.denials()
            driver = Driver(
                groups.store, on_error=lambda *each: reported.append((each[0], str(each[1])))
            )
            with pytest.raises(NoPermissionError):
                await groups.cancel_group("first")
            server.call("RPUSH", names.wakeups_key(PREFIX), "first")
            revoke(server, OPERATOR, "time")
            with pytest.raises(NoPermissionError):
                await driver.drain()
            # The group is still on the list, and nobody calls it corrupt.
            assert server.call("LRANGE", names.wakeups_key(PREFIX), 0, -1) == ["first"]
            assert reported == []
            access.grant(PREFIX)
            await driver.drain()
            access.grant("elsewhere")
            with pytest.raises(NoPermissionError):
                await groups.get_group_state("first")
            assert any("jobgroup: key bull:_jobgroups:" in each for each in access.denials())


@pytest.mark.parametrize("version", ["7.0", "8.0", "valkey-8.1"])
async def test_nothing_is_written_if_a_right_of_a_script_is_missing(
    tmp_path: Path, version: str
) -> None:
    said = r"lacks a right: it may not run XADD, ZADD on keys that begin with bull: "
    with RedisServer(tmp_path, version=version) as server:
        access = restricted(server)
        server.call("ACL", "SETUSER", OPERATOR, "-zadd", "-xadd")
        async with JobGroups.connect(access.url) as groups:
            for _ in range(2):
                with pytest.raises(NoPermissionError, match=said):
                    await groups.add_group("order", [job("charge")])
            assert server.call("DBSIZE") == 0
            reported: list[str] = []
            driver = Driver(groups.store, on_error=lambda _, error: reported.append(str(error)))
            driving = asyncio.create_task(driver.run())
            await eventually(lambda: has_any(reported))
            assert "it may not run XADD, ZADD" in reported[0]
            assert server.call("DBSIZE") == 0
            probe = RedisProbe(groups.store, "redis.shop:6379")
            await probe._ask()
            assert "it may not run XADD, ZADD" in probe.check()
            access.grant(PREFIX)
            node = await groups.add_group("order", [job("charge")])
            await groups.cancel_group(node.group_id)
            driving.cancel()
            with suppress(asyncio.CancelledError):
                await driving


async def has_any(reported: list[str]) -> bool:
    return bool(reported)


async def test_a_probe_names_the_missing_right(server: RedisServer, access: Access) -> None:
    revoke(server, OPERATOR, "evalsha")
    async with JobGroups.connect(access.url) as groups:
        probe = RedisProbe(groups.store, "redis.shop:6379")
        await probe._ask()
        assert probe.check().startswith(
            "Redis at redis.shop:6379 failed: the Redis user lacks a right: this user has no"
            " permissions to run the 'evalsha' command"
        )
        access.grant(PREFIX)
        await probe._ask()
        assert probe.check() == ""


async def test_role_is_needed_to_recognize_a_replica(server: RedisServer, access: Access) -> None:
    """Redis answers ROLE to a client that a sentinel sent to it."""
    server.call("REPLICAOF", HERE, "1")
    sentinels = Sentinels([], "shop", lambda _: connection)

    def open_connection() -> TcpConnection:
        return TcpConnection(
            host=HERE, port=server.port, username=OPERATOR, password=password(OPERATOR), protocol=2
        )

    connection = open_connection()
    await connection.connect()  # type: ignore[no-untyped-call]
    with pytest.raises(RedisConnectionError, match="not promoted yet"):
        await sentinels.confirm(connection)
    revoke(server, OPERATOR, "role")
    await sentinels.confirm(connection)
    await connection.disconnect()


@pytest.mark.parametrize("right", ["cluster|slots", "cluster|nodes"])
async def test_a_cluster_is_not_found_without_its_slots(tmp_path: Path, right: str) -> None:
    with ClusterNode(tmp_path, version="8.0") as server:
        server.call("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        restricted(server)
        url = login(server.url, OPERATOR).replace("redis://", "redis+cluster://")[:-2]
        await eventually_reads(url)
        revoke(server, OPERATOR, right)
        said = rf"no node .* answers: .*'cluster.{right[8:]}'"
        with pytest.raises(NoPermissionError, match=said):
            async with JobGroups.connect(url, "{bull}") as groups:
                await groups.store.ping()


async def eventually_reads(url: str) -> None:
    """Wait until a node has noticed that it has all slots."""

    async def answers() -> bool:
        async with connect(url, "{bull}") as client:
            with suppress(ResponseError, RedisConnectionError):
                return bool(await client.ping())
        return False

    await eventually(answers)


@pytest.fixture
def sentinel(tmp_path: Path) -> Iterator[RedisServer]:
    """Start a sentinel that watches a service, and its user."""
    with Sentinel(tmp_path, lines=["sentinel monitor shop 127.0.0.1 6379 1"]) as sentinel:
        sentinel.call("ACL", "SETUSER", SENTINEL, *rules(SENTINEL))
        yield sentinel


async def ask(connection: TcpConnection, right: str) -> Any:
    words = {"subscribe": ("SUBSCRIBE", *_CHANNELS), "ping": ("PING",)}
    command, _, subcommand = right.partition("|")
    await connection.send_command(*words.get(right, (command, subcommand, "shop")))
    return await connection.read_response()


@pytest.mark.parametrize("right", sorted(granted(SENTINEL)))
async def test_each_command_to_a_sentinel_is_needed(sentinel: RedisServer, right: str) -> None:
    connection = TcpConnection(
        host=HERE,
        port=sentinel.port,
        username=SENTINEL,
        password=password(SENTINEL),
        protocol=2,
        driver_info=None,
    )
    await connection.connect()  # type: ignore[no-untyped-call]
    await ask(connection, right)
    revoke(sentinel, SENTINEL, right)
    await connection.disconnect()
    await connection.connect()  # type: ignore[no-untyped-call]
    with pytest.raises(NoPermissionError):
        await ask(connection, right)
    await connection.disconnect()


async def test_a_client_without_rights_on_the_sentinels_says_so(sentinel: RedisServer) -> None:
    revoke(sentinel, SENTINEL, "sentinel|master")
    user = f"sentinel_username={SENTINEL}&sentinel_password={password(SENTINEL)}"
    url = f"redis+sentinel://{sentinel.address}/shop/0?{user}"
    client: Redis
    async with connect(url) as client:
        with pytest.raises(NoPermissionError, match=r"no sentinel knows .*'sentinel(\|master)?'"):
            await client.ping()
