"""The stage of the saga tests: groups under the test's prefix, a driver, and stock clients.

sagas    a test's groups with a driver at work; cleared away when the test's clients are gone
client   one stock client; a test that takes it runs for all three flavours
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from testbed.fixtures import ClientStarter
from testbed.sagas import Sagas, stage
from testbed.stock import StockClient


@pytest.fixture
async def sagas(redis_url: str, prefix: str) -> AsyncIterator[Sagas]:
    async with stage(redis_url, prefix) as sagas:
        yield sagas


@pytest.fixture
def start_client(
    sagas: Sagas, start_client: Callable[[str], Awaitable[StockClient]]
) -> Callable[[str], Awaitable[StockClient]]:
    """Start stock clients that are gone before the stage is cleared."""
    return start_client


@pytest.fixture
async def client(stock: ClientStarter) -> StockClient:
    return await stock()
