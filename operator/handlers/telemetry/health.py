"""The HTTP server of the probes: /livez, /readyz and /metrics, on every replica.

Live means that every loop makes progress, ready that Redis answers as well. The answer of /readyz
also has notes: what is wrong although the replica is ready.
"""

from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

Check = Callable[[], str]


class Health:
    """Answers probes from checks; a check returns what is wrong, or nothing."""

    def __init__(self, port: int, registry: CollectorRegistry, role: Check = lambda: "") -> None:
        """Add what `role` returns to the answer of /readyz while no check fails."""
        self._role = role
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._notes: dict[str, Check] = {}
        self._port = port
        self._registry = registry
        self._runner: web.AppRunner | None = None

    def add_live_check(self, name: str, check: Check) -> None:
        """Add a check to /livez, and so to /readyz."""
        self._live[name] = check

    def add_ready_check(self, name: str, check: Check) -> None:
        """Add a check to /readyz alone."""
        self._ready[name] = check

    def add_ready_note(self, name: str, note: Check) -> None:
        """Add a line to the answer of /readyz, which does not make it fail."""
        self._notes[name] = note

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
        return _answer(self._live, {})

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer({**self._live, **self._ready}, self._notes, self._role())


def _answer(
    checks: Mapping[str, Check], notes: Mapping[str, Check], role: str = ""
) -> web.Response:
    errors = _lines(checks)
    passed = f"ok: {role}" if role else "ok"
    text = "\n".join([*(errors or [passed]), *_lines(notes)])
    return web.Response(text=text + "\n", status=503 if errors else 200)


def _lines(checks: Mapping[str, Check]) -> list[str]:
    return [f"{name}: {error}" for name, check in checks.items() if (error := check())]
