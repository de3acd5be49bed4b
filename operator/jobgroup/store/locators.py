"""What tells connections where the server is that has the data of the prefix.

All data of a prefix is on one server at any time. So a connection asks its locator for the address
each time it connects, and everything else is a plain client of one server.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from redis import exceptions
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from jobgroup.store.redis_url import Address
from jobgroup.store.transience import DEMOTED, ELSEWHERE, MissingRightError

# How long to wait for a sentinel or node, and for the rest of them after more than half answered.
ASK_SECONDS = 1.5
GRACE_SECONDS = 0.25

Opener = Callable[[Address], AbstractConnection]
Answer = TypeVar("Answer")


class Locator:
    """The address in the URL, which never changes."""

    # The errors after which a connection is closed.
    leaves = DEMOTED
    # Whether CLIENT LIST shows the clients of all queues.
    lists_all_clients = True
    # How often the data moved, as far as that was announced, and where to.
    moves = 0
    latest: Address | None = None

    async def locate(self) -> Address | None:
        """Return the address to connect to, or None for that of the URL."""
        return None

    async def confirm(self, connection: AbstractConnection) -> None:
        """Raise ConnectionError if the server of a new connection is not the right one."""

    def watches(self) -> Sequence[AsyncGenerator[Address | None, None]]:
        """Return iterators over the addresses to which the data moved; None is an unknown one."""
        return ()

    def doubt(self) -> None:
        """Take note that a server did not answer in time: the data may be elsewhere now."""

    def is_elsewhere(self, connection: Any) -> bool:
        """Return whether the data may have left the server of an idle connection."""
        return False

    def move(self, address: Address | None) -> None:
        """Take note of an address that was announced."""
        if address is None or address != self.latest:
            self.latest = address
            self.moves += 1


class Asking(Locator):
    """A locator that asks several servers. Callers share an answer that is new enough."""

    leaves = ELSEWHERE

    def __init__(self, open_connection: Opener) -> None:
        self._open = open_connection
        self._lock = asyncio.Lock()
        self._asked_at = float("-inf")
        self._answer: Address | RedisError | None = None
        # The last address that was found; None after a server did not answer in time.
        self._found: Address | None = None

    async def locate(self) -> Address | None:
        called_at = time.monotonic()
        async with self._lock:
            if self._asked_at <= called_at:
                asked_at = time.monotonic()
                try:
                    self._answer = self._found = await self._find()
                except RedisError as error:
                    self._answer = error
                self._asked_at = asked_at
            if isinstance(self._answer, RedisError):
                raise self._answer
            return self._answer

    def doubt(self) -> None:
        self._found = None

    def is_elsewhere(self, connection: Any) -> bool:
        # A server that is frozen does not close connections.
        return bool((connection.host, connection.port) != self._found)

    async def _find(self) -> Address:
        raise NotImplementedError

    async def _ask(self, address: Address, *commands: Sequence[str]) -> list[Any]:
        """Send commands to a server; return the replies."""
        connection = self._open(address)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            for command in commands:
                await connection.send_command(*command)
            return [await connection.read_response() for _ in commands]
        finally:
            await connection.disconnect(nowait=True)


async def ask_all(
    questions: Sequence[Coroutine[Any, Any, Answer]],
) -> tuple[list[Answer], list[Exception]]:
    """Ask at the same time; return answers and errors. Do not wait long for the last ones."""
    tasks = [asyncio.create_task(question) for question in questions]
    waiting = set(tasks)
    try:
        while waiting:
            done = [task for task in tasks if task.done() and task.exception() is None]
            patience = GRACE_SECONDS if 2 * len(done) > len(tasks) else None
            answered, waiting = await asyncio.wait(
                waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            if not answered:
                break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    ended = [task for task in tasks if not task.cancelled()]
    errors = [task.exception() for task in ended]
    return (
        [task.result() for task in ended if not task.exception()],
        [error for error in errors if isinstance(error, Exception)],
    )


def are_unreachable(errors: Sequence[Exception]) -> bool:
    """Return whether no server answered; an answer of a server has an exception of its own."""
    return all(
        type(each) in (exceptions.ConnectionError, exceptions.TimeoutError) for each in errors
    )


def failure(message: str, errors: Sequence[Exception]) -> RedisError:
    """Return the error to raise if all servers failed: permanent if all of them refuse the user."""
    kind: type[RedisError] = exceptions.ConnectionError
    if errors and all(isinstance(error, exceptions.AuthenticationError) for error in errors):
        kind = exceptions.AuthenticationError
    elif errors and all(isinstance(error, exceptions.NoPermissionError) for error in errors):
        kind = MissingRightError
    reason = "; ".join(sorted({str(error) for error in errors})) or "they do not answer in time"
    return kind(f"{message}: {reason}")
