"""Waiting for a condition."""

import asyncio
import time
import urllib.request
from collections.abc import Awaitable, Callable

PATIENCE_SECONDS = 120


def answers(url: str) -> bool:
    """Return whether an HTTP server answers a URL with status 200."""
    try:
        # Without a proxy: the server listens on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a check returns true; raise TimeoutError after PATIENCE_SECONDS."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await check():
            await asyncio.sleep(0.02)


async def never_returns(*_: object) -> None:
    """Replace a call that hangs."""
    await asyncio.Event().wait()


def wait_for(check: Callable[[], bool]) -> None:
    """Wait until a check returns true; raise TimeoutError after PATIENCE_SECONDS."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition does not hold after {PATIENCE_SECONDS} s")
        time.sleep(0.02)
