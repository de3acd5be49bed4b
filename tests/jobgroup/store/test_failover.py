"""After a failover, clients of the old primary connect to the new one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jobgroup import connect
from jobgroup.store.connection import RedisError
from testbed.servers.redis import RedisServer
from testbed.support.waiting import eventually


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


@pytest.mark.server
async def test_a_client_finds_the_new_primary(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    with RedisServer(tmp_path / "old") as old, RedisServer(tmp_path / "new") as new:
        primary = old
        async with (
            relay(lambda: primary.port) as url,
            connect(url) as client,
            connect(old.url) as there,
        ):
            await client.set("key", "before")
            await there.execute_command("REPLICAOF", "127.0.0.1", str(new.port))  # type: ignore[no-untyped-call]
            primary = new

            async def is_written() -> bool:
                try:
                    return bool(await client.eval("return redis.call('SET', 'key', 'after')", 0))
                except RedisError:
                    return False

            await eventually(is_written)
