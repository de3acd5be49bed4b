"""Errors of a real Redis are recognized by the code that Redis wrote, wherever else it appears."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import exceptions
from redis.asyncio import Redis

from jobgroup import GroupExistsError, GroupNotFoundError, JobExistsError, JobGroups
from jobgroup.store.connection import is_transient
from testbed.servers.redis import RedisServer
from testbed.support.waiting import eventually

CALL = "Error running script (call to f_bd6f3018b28bbdb36260f19d3c44afed740db987): @user_script:1: "
SCRIPT = " script: bd6f3018b28bbdb36260f19d3c44afed740db987, on @user_script:1."
# The ways in which the scripts of this project run a command that Redis refuses.
WAYS = {
    "called": "return redis.call('SET', 'key', 'x')",
    "caught": """
        local function write() return redis.call('SET', 'key', 'x') end
        local done, reply = pcall(write)
        return (done or type(reply) == 'table') and reply or redis.error_reply(reply)""",
}


@pytest.mark.parametrize(
    ("text", "transient"),
    [
        # Redis 6.2.14
        (CALL + "@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.", True),
        ("@user_script: 17: -READONLY You can't write against a read only replica.", True),
        (CALL + "@user_script: 1: -NOREPLICAS Not enough good replicas to write.", True),
        (CALL + "WRONGTYPE Operation against a key holding the wrong kind of value", False),
        (CALL + "user_script:1: READONLY is part of a message", False),
        (CALL + "ERR unknown command BUSY", False),
        # Redis 7.0.15
        ("MISCONF Errors writing to the AOF file: No space left on device" + SCRIPT, True),
        ("NOREPLICAS Not enough good replicas to write." + SCRIPT, True),
        ("user_script:1: READONLY is part of a message" + SCRIPT, False),
        # Both
        ("BUSY Redis is busy running a script. You can only call SCRIPT KILL", True),
        ("UNBLOCKED force unblock from blocking operation, instance state changed", True),
        ("NOSCRIPT No matching script. Please use EVAL.", True),
        ("READONLY", True),
        ("READONLYX", False),
        ("GROUPEXISTS READONLY", False),
        ("JOBEXISTS OOM:BUSY:READONLY-0", False),
        ("JOBEXISTS @user_script: 1: -READONLY", False),
        ("WRONGTYPE BUSY", False),
    ],
)
def test_only_a_code_that_redis_wrote_is_transient(text: str, transient: bool) -> None:
    assert is_transient(exceptions.ResponseError(text)) is transient


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Start a Redis that the test may break."""
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
async def redis(server: RedisServer) -> AsyncIterator[Redis]:
    """Open a client as redis-py makes it."""
    client: Redis = Redis.from_url(server.url, decode_responses=True)
    async with client:
        yield client


async def errors_of_a_write(redis: Redis) -> list[Exception]:
    """Return the errors of a write, sent alone and from scripts."""
    found: list[Exception] = []
    for way in (("SET", "key", "x"), *(("EVAL", script, 0) for script in WAYS.values())):
        try:
            await redis.execute_command(*way)  # type: ignore[no-untyped-call]
        except exceptions.RedisError as error:
            found.append(error)
    assert len(found) == 1 + len(WAYS)
    return found


@pytest.mark.parametrize(
    "settings",
    [{"maxmemory": 1}, {"min-replicas-to-write": 1}],
    ids=["OOM", "NOREPLICAS"],
)
async def test_a_redis_that_cannot_write_is_transient(
    redis: Redis, settings: dict[str, Any]
) -> None:
    for name, value in settings.items():
        await redis.config_set(name, value)
    assert all(map(is_transient, await errors_of_a_write(redis)))


async def test_a_replica_is_transient(redis: Redis) -> None:
    await redis.execute_command("REPLICAOF", "127.0.0.1", "1")  # type: ignore[no-untyped-call]
    assert all(map(is_transient, await errors_of_a_write(redis)))
    await redis.config_set("replica-serve-stale-data", "no")
    errors = await errors_of_a_write(redis)
    assert any(isinstance(error, exceptions.MasterDownError) for error in errors)
    assert all(map(is_transient, errors))


async def test_a_busy_redis_is_transient(server: RedisServer, redis: Redis) -> None:
    await redis.config_set("lua-time-limit", 1)
    async with Redis.from_url(server.url) as other:

        async def run_endlessly() -> None:
            await other.eval("while true do end", 0)

        endless = asyncio.create_task(run_endlessly())

        async def is_busy() -> bool:
            try:
                await redis.ping()
            except exceptions.ResponseError:
                return True
            return False

        await eventually(is_busy)
        errors = await errors_of_a_write(redis)
        await redis.script_kill()
        with suppress(exceptions.ResponseError):
            await endless
    assert all(map(is_transient, errors))


@pytest.mark.parametrize("word", ["READONLY", "OOM", "UNBLOCKED", "a-READONLY", "MISCONF.1"])
async def test_a_code_in_an_id_or_a_prefix_is_not_an_error_of_redis(
    server: RedisServer, redis: Redis, word: str
) -> None:
    async with JobGroups.connect(server.url, prefix=word) as groups:
        jobs = [{"name": "pay", "queueName": word}]
        with pytest.raises(GroupNotFoundError):
            await groups.cancel_group(word)
        node = await groups.add_group("order", jobs, group_id=word)
        with pytest.raises(GroupExistsError):
            await groups.add_group("another", jobs, group_id=word)
        await redis.hset(f"{word}:{word}:new-0", "name", "of another")
        with pytest.raises(JobExistsError):
            await groups.add_group("order", jobs, group_id="new")
        await groups.cancel_group(node.group_id)
