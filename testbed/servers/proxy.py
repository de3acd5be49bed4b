"""An HTTP proxy between an operator and the API server, which a test can disturb.

It terminates the operator's TLS with the server's own certificate and uses TLS to the server, so it
sees every request. It runs in a thread, so it answers while a test blocks.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable
from typing import Any, Self

import aiohttp
from aiohttp import web

from testbed.servers.apiserver import ApiServer

# Headers of a connection, which are not passed on.
OWN = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding"}
)
WRITES = frozenset({"DELETE", "PATCH", "POST", "PUT"})

# Returns the answer in place of the server's, or None to pass a request on.
Refusal = Callable[[web.BaseRequest], web.Response | None]
# Returns whether an answer is cut short.
Selection = Callable[[web.BaseRequest], bool]


def nothing(_: web.BaseRequest) -> web.Response | None:
    """Refuse nothing."""
    return None


def none(_: web.BaseRequest) -> bool:
    """Select no request."""
    return False


class Proxy:
    """Passes every request on, unless a test disturbs it."""

    def __init__(self, api: ApiServer) -> None:
        self.url = ""
        self.refuse: Refusal = nothing
        self.refused: list[tuple[str, str]] = []
        # Only the first half of these answers is sent, with or without an error of HTTP.
        self.shorten: Selection = none
        self.announces_length = True
        self.shortened: list[str] = []
        # The number of watches of JobGroups that have begun.
        self.watches = 0
        self._api = api
        self._busy: set[asyncio.Task[Any]] = set()
        # The open watches of JobGroups, and those of them that pass nothing on.
        self._watching: dict[asyncio.Task[Any], web.StreamResponse] = {}
        self._silent: set[asyncio.Task[Any]] = set()
        self._silences_new = False
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def cut_watches(self) -> None:
        """Cut the connection of every watch of JobGroups."""

        def cut() -> None:
            for task in self._watching:
                task.cancel()

        self._loop.call_soon_threadsafe(cut)

    def silence_watches(self, new: bool = False) -> None:
        """Send nothing more on the open watches of JobGroups, nor on `new` ones; close none."""

        def silence() -> None:
            self._silent.update(self._watching)
            self._silences_new = new

        self._loop.call_soon_threadsafe(silence)

    def unsilence_watches(self) -> None:
        """Pass new watches of JobGroups on; those that were silent remain so."""
        self._silences_new = False

    def inject(self, data: bytes, end: bool = False) -> None:
        """Send bytes on every open watch of JobGroups; then `end` the answer as HTTP prescribes."""

        async def send() -> None:
            for task, response in list(self._watching.items()):
                await response.write(data)
                if end:
                    await response.write_eof()
                    task.cancel()

        asyncio.run_coroutine_threadsafe(send(), self._loop).result(10)

    def swallow(self) -> None:
        """Do not answer from now on, as in a network that loses all packets."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def go_on(self) -> None:
        """Answer again, including the requests that came in the meantime."""
        self._loop.call_soon_threadsafe(self._open.set)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open, self._ended = asyncio.Event(), asyncio.Event()
        self._open.set()
        trust = ssl.create_default_context(cafile=str(self._api.certificate))
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(self._api.certificate, self._api.certificate.with_suffix(".key"))
        server = web.Server(self._handle, access_log=None)
        connector = aiohttp.TCPConnector(limit=0, ssl=trust)
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as self._session:
            runner = web.ServerRunner(server, shutdown_timeout=0)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=own)
            await site.start()
            self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
            self._is_up.set()
            await self._ended.wait()
            await site.stop()
            # A connection is known only after its TLS handshake, which may still be under way.
            for _ in range(5):
                for task in self._busy:
                    task.cancel()
                # The process on the other side may be stopped, and would never end TLS.
                for connection in server.connections:
                    if connection.transport is not None:
                        connection.transport.abort()
                await asyncio.sleep(0.1)
            await runner.cleanup()
            await connector.close(abort_ssl=True)
        # Aborted connections are closed in the next iterations of the loop.
        await asyncio.sleep(0.1)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None, "a handler runs in a task"
        self._busy.add(task)
        try:
            return await self._answer(request)
        finally:
            self._busy.discard(task)
            self._watching.pop(task, None)
            self._silent.discard(task)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        await self._open.wait()
        if (refusal := self.refuse(request)) is not None:
            self.refused.append((request.method, request.path))
            return refusal
        return await self._pass(request)

    async def _pass(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {key: value for key, value in request.headers.items() if key.lower() not in OWN}
        url = self._api.url + request.path_qs
        body = await request.read() or None
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=body
            ) as answer:
                sent = {k: value for k, value in answer.headers.items() if k.lower() not in OWN}
                response = web.StreamResponse(status=answer.status, headers=sent)
                if self.shorten(request):
                    return await self._send_half(request, response, await answer.read())
                await response.prepare(request)
                if is_watch(request):
                    return await self._pass_watch(response, answer)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response
        except aiohttp.ClientError:
            # As without a proxy: no answer at all.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)

    async def _pass_watch(
        self, response: web.StreamResponse, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None, "a handler runs in a task"
        self._watching[task] = response
        if self._silences_new:
            self._silent.add(task)
        self.watches += 1
        async for chunk in answer.content.iter_any():
            if task not in self._silent:
                await response.write(chunk)
        while task in self._silent:
            await asyncio.sleep(3600)
        return response

    async def _send_half(
        self, request: web.BaseRequest, response: web.StreamResponse, body: bytes
    ) -> web.StreamResponse:
        self.shortened.append(request.path)
        if self.announces_length:
            response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        if self.announces_length and request.transport is not None:
            request.transport.close()
        return response

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)


def is_watch(request: web.BaseRequest) -> bool:
    """Return whether a request is a watch of JobGroups."""
    return "watch" in request.query and request.path.endswith("/jobgroups")
