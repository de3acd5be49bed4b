"""Waiting for what is true sooner or later, without a guess at how long it takes."""

import asyncio
import time
import urllib.request
from collections.abc import Awaitable, Callable

PATIENCE_SECONDS = 120


def answers(url: str) -> bool:
    """Say whether an HTTP server answers this URL well now."""
    try:
        # No proxy: what is asked listens on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes; TimeoutError after a minute of no."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await check():
            await asyncio.sleep(0.02)


def wait_for(check: Callable[[], bool]) -> None:
    """Ask until the answer is yes; TimeoutError after a minute of no."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"still no after {PATIENCE_SECONDS} s")
        time.sleep(0.02)
