"""A driver that is killed at its n-th command: python doomed_driver.py URL PREFIX N before|after

With `before` it dies before the command is sent; with `after` it dies before the reply arrives, so
Redis has executed the command. If it becomes idle first, it exits with code 0.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from redis.asyncio.connection import AbstractConnection

from jobgroup import Driver, Store, connect


def doom(at: int, moment: str) -> None:
    """Make the connection kill this process at its n-th command."""
    send = AbstractConnection.send_packed_command
    sent = 0

    async def send_or_die(self: AbstractConnection, *args: Any, **kwargs: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == at and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await send(self, *args, **kwargs)
        if sent == at:
            os.kill(os.getpid(), signal.SIGKILL)

    AbstractConnection.send_packed_command = send_or_die  # type: ignore[method-assign]


async def drive(url: str, prefix: str) -> None:
    async with connect(url) as redis:
        driver = Driver(Store(redis, prefix))
        await driver.drain()
        await driver.resync()
        await driver.drain()


if __name__ == "__main__":
    doom(int(sys.argv[3]), sys.argv[4])
    asyncio.run(drive(sys.argv[1], sys.argv[2]))
