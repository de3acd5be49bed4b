"""The command line, and groups that are removed after each test."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis

from jobgroup import Driver, JobGroups
from jobgroup.cli.commands import main
from testbed.servers.stock import StockClient
from testbed.support.fixtures import QueueNamer
from testbed.support.sagas import all_groups, delete_residue
from tests.jobgroup.cli.command_line import Cli, Here, line_of


@pytest.fixture
def cli(redis_url: str, prefix: str) -> Cli:
    return Cli(redis_url, prefix)


@pytest.fixture
def here(cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run the command line in this process, for tests that need no process of their own."""

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
async def groups(
    redis_url: str, redis: Redis, prefix: str, queue: QueueNamer
) -> AsyncIterator[JobGroups]:
    """Return the API; remove every group and its tombstone afterwards."""
    for name in ("payments", "inventory", "shipping"):
        queue(name)
    async with JobGroups.connect(redis_url, prefix) as groups:
        yield groups
        for group_id in await all_groups(redis, prefix):
            state = await groups.get_group_state(group_id)
            if state and not state.ended:
                await groups.cancel_group(group_id)
                await Driver(groups.store).drain()
            await groups.remove_group(group_id)
        await delete_residue(redis, prefix)


@pytest.fixture
async def worker(
    groups: JobGroups, start_client: Callable[[str], Awaitable[StockClient]]
) -> StockClient:
    """Start a stock client that ends before the groups are removed."""
    return await start_client("bullmq6")


@pytest.fixture
async def driver(groups: JobGroups, cli: Cli) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `drive` during the test and stop it as a service manager does."""
    process = await cli.start("drive")
    assert "driving" in await line_of(process.stderr)
    yield process
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    await process.communicate()
