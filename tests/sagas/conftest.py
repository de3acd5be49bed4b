"""Fixtures of the saga tests.

start_client   starts stock clients, which end before the groups are removed
client         one stock client; a test that requests it runs for all three flavours
first_format   a store of scripts that know no format but the first
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from jobgroup import Store
from testbed.servers.stock import StockClient
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import Sagas, knowing


@pytest.fixture
def start_client(
    sagas: Sagas, start_client: Callable[[str], Awaitable[StockClient]]
) -> Callable[[str], Awaitable[StockClient]]:
    """Start stock clients that are closed before the groups are removed."""
    return start_client


@pytest.fixture
async def client(stock: ClientStarter) -> StockClient:
    return await stock()


@pytest.fixture
def first_format(operator_redis: Redis, prefix: str, tmp_path: Path) -> Store:
    return Store(operator_redis, prefix, knowing(tmp_path / "lua", 1))
