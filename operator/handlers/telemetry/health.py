"""/livez and /readyz: alive while nothing that must run is dead, ready while Redis answers.

/metrics is beside them, on a replica that waits as well.
"""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

Check = Callable[[], str]


class Health:
    """A small web server; a check returns what is wrong, or nothing."""

    def __init__(self, port: int, registry: CollectorRegistry) -> None:
        self.live: dict[str, Check] = {}
        self.ready: dict[str, Check] = {}
        self._port = port
        self._registry = registry
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen, unless the port is 0."""
        if not self._port:
            return
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", make_aiohttp_handler(self._registry))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner:
            await self._runner.cleanup()

    async def _livez(self, _: web.Request) -> web.Response:
        return _answer(self.live)

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer({**self.live, **self.ready})


def _answer(checks: dict[str, Check]) -> web.Response:
    wrong = [f"{name}: {said}" for name, check in checks.items() if (said := check())]
    return web.Response(text="\n".join(wrong or ["ok"]) + "\n", status=503 if wrong else 200)
