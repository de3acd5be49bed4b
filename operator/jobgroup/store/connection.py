"""Clients of Redis: URLs, connections, and which errors are transient."""

import asyncio
import re
from typing import Any
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError, ResponseError

from jobgroup.errors import InvalidSpecError

# A URL can set another number: redis://host/?max_connections=500.
MAX_CONNECTIONS = 100

UNAVAILABLE = (
    exceptions.BusyLoadingError,
    exceptions.ConnectionError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.TimeoutError,
)
# Anywhere in the text: up to 6.2 Redis puts a text of its own before the error of a script.
_TRANSIENT = re.compile(
    r"\b(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|TRYAGAIN)\b"
)


def locate(url: str) -> str:
    """Return host and port, or the socket, of a URL; raise if redis-py would misread the URL."""
    message = (
        "the Redis URL must look like redis://user:password@host:6379/0, rediss://... or"
        " unix:///path, with the special characters of a password percent-encoded"
    )
    try:
        parts = urlsplit(url)
        port = parts.port or 6379
    except ValueError:
        raise InvalidSpecError(message) from None
    outside = parts.path + parts.query + parts.fragment
    if parts.scheme not in {"redis", "rediss", "unix"} or "@" in outside:
        raise InvalidSpecError(message)
    return parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}:{port}"


class _ReconnectOnReadOnly:
    """A connection that closes when Redis answers READONLY, as a demoted primary does.

    After a failover the host name may lead to the new primary, but only for a new connection.
    """

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().read_response(*args, **kwargs)  # type: ignore[misc]
        except ResponseError as error:
            if not isinstance(error, exceptions.ReadOnlyError) and "READONLY" not in str(error):
                raise
            await self.disconnect()  # type: ignore[attr-defined]
            raise exceptions.ConnectionError(f"READONLY: {error}") from None


def connect(url: str, **options: Any) -> Redis:
    """Open a client for the store. It decodes all replies, replacing bytes that are not UTF-8.

    A call waits if all connections are in use; the default pool of redis-py would raise an error.
    Raise InvalidSpecError if the URL has a parameter that redis-py does not accept.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=None,
            decode_responses=True,
            encoding_errors="replace",
            **options,
        )
        # redis-py checks the names of parameters only when it makes a connection.
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        raise InvalidSpecError(
            "the Redis URL has a parameter that redis-py does not accept"
        ) from None
    pool.connection_class = type("Connection", (_ReconnectOnReadOnly, pool.connection_class), {})
    return Redis.from_pool(pool)


def is_transient(error: BaseException) -> bool:
    """Return whether waiting may help: Redis is unavailable, starting, full or busy."""
    if isinstance(error, exceptions.AuthenticationError):
        return False
    if isinstance(error, UNAVAILABLE):
        return True
    return isinstance(error, ResponseError) and bool(_TRANSIENT.search(str(error)))


def leave_if_cancelled() -> None:
    """Raise CancelledError if redis-py suppressed the cancellation of this task."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError


__all__ = ["UNAVAILABLE", "RedisError", "connect", "is_transient", "leave_if_cancelled", "locate"]
