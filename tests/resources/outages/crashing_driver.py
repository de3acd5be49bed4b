"""The operator with a driver that crashes once a file exists."""

import asyncio
import os
from pathlib import Path

from jobgroup import Driver

has_to_crash = Path(os.environ["CRASH"]).exists


async def crash(self: Driver) -> None:
    while not has_to_crash():
        await asyncio.sleep(0.02)
    raise RuntimeError("the driver is broken")


Driver.run = crash  # type: ignore[method-assign]

import main  # noqa: E402, F401
