"""Fixtures of the saga tests.

start_client   starts stock clients, which end before the groups are removed
client         one stock client; a test that requests it runs for all three flavours
"""

from collections.abc import Awaitable, Callable

import pytest

from testbed.servers.stock import StockClient
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import Sagas


@pytest.fixture
def start_client(
    sagas: Sagas, start_client: Callable[[str], Awaitable[StockClient]]
) -> Callable[[str], Awaitable[StockClient]]:
    """Start stock clients that are closed before the groups are removed."""
    return start_client


@pytest.fixture
async def client(stock: ClientStarter) -> StockClient:
    return await stock()
