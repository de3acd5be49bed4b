"""The command line for tests: run to its end, or started in the background."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis

from testbed import ROOT
from testbed.servers.processes import leashed
from testbed.servers.stock import StockClient
from testbed.support.waiting import PATIENCE_SECONDS

SOURCES = ROOT / "operator"
ORDER = """\
name: order
groupId: order-1
jobs:
- {name: charge, queueName: payments}
- {name: reserve, queueName: inventory}
compensation:
  charge: {name: refund}
"""
Here = Callable[..., "subprocess.CompletedProcess[str]"]
SECRET = "hunter2"  # noqa: S105 (no secret: the tests look for it where it must not be)


class Cli:
    """Runs `python -m jobgroup` on one Redis, under one prefix."""

    def __init__(self, redis_url: str, prefix: str) -> None:
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            "PYTHONPATH": str(SOURCES),
            "REDIS_URL": redis_url,
            "BULLMQ_PREFIX": prefix,
            "COLUMNS": "120",
        }
        self.command = leashed([sys.executable, "-m", "jobgroup"])

    def __call__(
        self, *args: str, stdin: str = "", **env: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run to the end; the output must never contain a traceback."""
        done = subprocess.run(
            [*self.command, *args],
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.env, **env},
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done

    async def start(self, *args: str, **settings: Any) -> asyncio.subprocess.Process:
        """Start and leave running."""
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE, **settings}
        return await asyncio.create_subprocess_exec(*self.command, *args, env=self.env, **pipes)


async def line_of(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        return (await stream.readline()).decode()


async def ending_of(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        output, complaints = await process.communicate()
    return process.returncode, (output or b"").decode(), (complaints or b"").decode()


async def keys_of(redis: Redis, prefix: str) -> list[str]:
    return [key async for key in redis.scan_iter(f"{prefix}*")]


async def work(worker: StockClient, **behaviour: Any) -> None:
    for queue in ("payments", "inventory"):
        await worker.work(queue, behaviour)
