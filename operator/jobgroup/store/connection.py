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
    exceptions.ClusterDownError,  # MASTERDOWN too
    exceptions.ConnectionError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.TimeoutError,
    exceptions.TryAgainError,
)
# An error begins with its code. Up to 6.2, Redis writes a text of its own before the error of a
# command that a script called. A word after that may be part of an id, of a key or of data.
_CODE = re.compile(
    r"(?:Error running script \(call to f_[0-9a-f]{40}\): @user_script:[0-9]+: )?"
    r"(?:@user_script: [0-9]+: -)?([A-Z]+)(?= |$)"
)
# What a demoted primary answers to a command that writes, and to one that blocks.
_DEMOTED = frozenset({"READONLY", "UNBLOCKED"})
_TRANSIENT = _DEMOTED | {
    *("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "TRYAGAIN")
}


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


class _ReconnectOnDemotion:
    """A connection that closes when Redis answers as a demoted primary does.

    After a failover the host name may lead to the new primary, but only for a new connection.
    """

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            reply = await super().read_response(*args, **kwargs)  # type: ignore[misc]
        except ResponseError as error:
            reply = error
        for each in reply if isinstance(reply, list) else [reply]:
            if isinstance(each, ResponseError) and _is_demotion(each):
                await self.disconnect()  # type: ignore[attr-defined]
                raise exceptions.ConnectionError(f"Redis is no longer the primary: {each}")
        if isinstance(reply, ResponseError):
            raise reply
        return reply


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
    pool.connection_class = type("Connection", (_ReconnectOnDemotion, pool.connection_class), {})
    return Redis.from_pool(pool)


def is_transient(error: BaseException) -> bool:
    """Return whether waiting may help: Redis is unavailable, starting, full, busy or demoted."""
    if isinstance(error, exceptions.AuthenticationError):
        return False
    if isinstance(error, UNAVAILABLE):
        return True
    return isinstance(error, ResponseError) and _code(error) in _TRANSIENT


def _is_demotion(error: ResponseError) -> bool:
    return isinstance(error, exceptions.ReadOnlyError) or _code(error) in _DEMOTED


def _code(error: ResponseError) -> str:
    """Return the code that Redis wrote, or nothing if redis-py removed it or if there is none."""
    found = _CODE.match(str(error))
    return found[1] if found else ""


def leave_if_cancelled() -> None:
    """Raise CancelledError if redis-py suppressed the cancellation of this task."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError


__all__ = ["UNAVAILABLE", "RedisError", "connect", "is_transient", "leave_if_cancelled", "locate"]
