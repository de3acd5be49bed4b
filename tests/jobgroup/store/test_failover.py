"""After a failover, clients of the old primary connect to the new one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup import JobGroups, Store, connect
from jobgroup.store.connection import RedisError
from testbed.servers.redis import RedisServer
from testbed.support.waiting import eventually

JOBS = [{"name": "pay", "queueName": "payments"}]


@asynccontextmanager
async def relay(port: Callable[[], int]) -> AsyncIterator[str]:
    """Forward new connections to the current server; keep existing connections."""

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", port())
        await asyncio.gather(copy(reader, downstream), copy(upstream, writer))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def replicate(redis: Redis, host: str, port: int | str) -> None:
    """Make a server the replica of another; of `NO ONE`, a primary."""
    await redis.execute_command("REPLICAOF", host, port)  # type: ignore[no-untyped-call]


@asynccontextmanager
async def failover(folder: Path) -> AsyncIterator[tuple[str, Redis, Callable[[], Awaitable[None]]]]:
    """Start a primary and a replica; yield a URL, the primary and what makes them swap roles.

    The URL leads new connections to the primary, as a host name does.
    """
    for name in ("old", "new"):
        (folder / name).mkdir()
    with RedisServer(folder / "old") as old, RedisServer(folder / "new") as new:
        primary = old
        async with (
            relay(lambda: primary.port) as url,
            Redis.from_url(old.url, decode_responses=True) as there,
            Redis.from_url(new.url, decode_responses=True) as here,
        ):

            async def swap() -> None:
                nonlocal primary
                assert await there.wait(1, 60_000) == 1
                await replicate(here, "NO", "ONE")
                primary = new
                await replicate(there, "127.0.0.1", new.port)

            async def is_replicated() -> bool:
                return str((await here.info("replication"))["master_link_status"]) == "up"

            await replicate(here, "127.0.0.1", old.port)
            await eventually(is_replicated)
            yield url, there, swap


@pytest.mark.server
async def test_waiting_for_a_group_survives_a_failover(tmp_path: Path) -> None:
    async with failover(tmp_path) as (url, old, swap), JobGroups.connect(url) as groups:
        node = await groups.add_group("order", JOBS)
        waiting = asyncio.create_task(groups.wait_for_group(node.group_id, 60))

        async def blocks() -> bool:
            return int((await old.info("clients"))["blocked_clients"]) == 1

        await eventually(blocks)
        await swap()
        assert not waiting.done()
        await groups.cancel_group(node.group_id)
        assert (await waiting).state == "FAILED"


@pytest.mark.server
@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.eval("return redis.call('SET', 'key', 'after')", 0),
        lambda client: JobGroups(Store(client)).add_group("order", JOBS, group_id="after"),
    ],
    ids=["a key", "a group"],
)
async def test_a_client_writes_to_the_new_primary(
    tmp_path: Path, write: Callable[[Redis], Awaitable[Any]]
) -> None:
    async with failover(tmp_path) as (url, _, swap), connect(url) as client:
        await client.set("key", "before")
        await swap()

        async def is_written() -> bool:
            try:
                await write(client)
            except RedisError:
                return False
            return True

        await eventually(is_written)
