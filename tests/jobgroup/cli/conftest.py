"""The command line, and what it works on, which is removed afterwards."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from jobgroup import Driver, JobGroups, keys
from jobgroup.__main__ import main
from testbed.fixtures import QueueNamer
from testbed.stock import StockClient
from tests.jobgroup.command_line import Cli, Here, line_of


@pytest.fixture
def cli(redis_url: str, prefix: str) -> Cli:
    return Cli(redis_url, prefix)


@pytest.fixture
def here(cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run the same in this process: quicker, where being a process is not the point."""

    def run(*args: str, **env: str) -> "subprocess.CompletedProcess[str]":
        for name, value in {**cli.env, **env}.items():
            monkeypatch.setenv(name, value)
        try:
            code = main(args)
        except SystemExit as end:
            code = int(end.code or 0)
        return subprocess.CompletedProcess(args, code, *capsys.readouterr())

    return run


@pytest.fixture
async def groups(redis_url: str, prefix: str, queue: QueueNamer) -> AsyncIterator[JobGroups]:
    """Open the API; every group is removed afterwards, with what a removed group leaves behind."""
    for name in ("payments", "inventory", "shipping"):
        queue(name)
    async with JobGroups.connect(redis_url, prefix) as groups:
        yield groups
        redis, books = groups.store.redis, keys.books(prefix)
        parked = await redis.zrange(keys.parked(prefix), 0, -1)
        ended = await redis.zrange(f"{books}:saga:ended", 0, -1)
        for group_id in {keys.group_of(token) for token in [*parked, *ended]}:
            state = await groups.get_group_state(group_id)
            if state and not state.ended:
                await groups.cancel_group(group_id)
                await Driver(groups.store).drain()
            await groups.remove_group(group_id)
        tombs = [key async for key in redis.scan_iter(f"{books}:tomb:*")]
        await redis.delete(f"{books}:events", keys.marker(prefix), *tombs)


@pytest.fixture
async def worker(
    groups: JobGroups, start_client: Callable[[str], Awaitable[StockClient]]
) -> StockClient:
    """Start a stock client that is gone before the groups are removed."""
    return await start_client("bullmq6")


@pytest.fixture
async def driver(groups: JobGroups, cli: Cli) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `drive` beside the test, and end it as a service manager does."""
    process = await cli.start("drive")
    assert "driving" in await line_of(process.stderr)
    yield process
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    await process.communicate()
