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


def nothing(_: web.BaseRequest) -> web.Response | None:
    """Refuse nothing."""
    return None


class Proxy:
    """Passes every request on, unless a test disturbs it."""

    def __init__(self, api: ApiServer) -> None:
        self.url = ""
        self.refuse: Refusal = nothing
        self.refused: list[tuple[str, str]] = []
        # The number of watches of JobGroups that have begun.
        self.watches = 0
        self._api = api
        self._busy: set[asyncio.Task[Any]] = set()
        self._watching: set[asyncio.Task[Any]] = set()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def cut_watches(self) -> None:
        """Cut the connection of every watch of JobGroups."""

        def cut() -> None:
            for task in self._watching:
                task.cancel()

        self._loop.call_soon_threadsafe(cut)

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
            for task in self._busy:
                task.cancel()
            # The process on the other side may be stopped, and would never complete the end of TLS.
            for connection in server.connections:
                if connection.transport is not None:
                    connection.transport.abort()
            await runner.cleanup()
            await connector.close(abort_ssl=True)
        # Aborted connections are closed in the next iterations of the loop.
        await asyncio.sleep(0.1)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None, "a handler runs in a task"
        self._busy.add(task)
        try:
            return await self._answer(request, task)
        finally:
            self._busy.discard(task)

    async def _answer(
        self, request: web.BaseRequest, task: asyncio.Task[Any]
    ) -> web.StreamResponse:
        await self._open.wait()
        if (refusal := self.refuse(request)) is not None:
            self.refused.append((request.method, request.path))
            return refusal
        if not is_watch(request):
            return await self._pass(request)
        self.watches += 1
        self._watching.add(task)
        try:
            return await self._pass(request)
        finally:
            self._watching.discard(task)

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
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response
        except aiohttp.ClientError:
            # As without a proxy: no answer at all.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)

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
