"""The way to Redis: its URL, a client fit for the store, and what to do when it is away."""

import asyncio
import random
import re
from typing import Any
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError, ResponseError

from jobgroup.errors import InvalidSpecError

BACKOFF_SECONDS = (0.1, 30.0)
# A URL may ask for another number: redis://host/?max_connections=500.
MOST_CONNECTIONS = 100

_AWAY = (
    exceptions.BusyLoadingError,
    exceptions.ConnectionError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.TimeoutError,
)
# Not only the first word: up to 6.2 Redis puts its own in front of what went wrong in a script.
_WAITED_OUT = re.compile(
    r"\b(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|TRYAGAIN)\b"
)


def locate(url: str) -> str:
    """Name a Redis without its password, or refuse a URL that redis-py would misread."""
    sentence = (
        "the Redis URL must look like redis://user:password@host:6379/0, rediss://... or"
        " unix:///path, with the special characters of a password percent-encoded"
    )
    try:
        parts = urlsplit(url)
        port = parts.port or 6379
    except ValueError:
        raise InvalidSpecError(sentence) from None
    outside = parts.path + parts.query + parts.fragment
    if parts.scheme not in {"redis", "rediss", "unix"} or "@" in outside:
        raise InvalidSpecError(sentence)
    return parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}:{port}"


class _Faithless:
    """A connection that leaves a Redis which only copies another, as one does after a failover.

    Its name may lead to the new primary by now, but only whoever connects anew gets there.
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
    """Open a client fit for the store: texts, whatever bytes a worker wrote as its reason.

    Calls beyond the most connections wait for one; redis-py's own pool would refuse them.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=MOST_CONNECTIONS,
        timeout=None,
        decode_responses=True,
        encoding_errors="replace",
        **options,
    )
    pool.connection_class = type("Connection", (_Faithless, pool.connection_class), {})
    return Redis.from_pool(pool)


def is_transient(error: BaseException) -> bool:
    """Say whether waiting may help: Redis is away, starting, full or busy."""
    if isinstance(error, exceptions.AuthenticationError):
        return False
    if isinstance(error, _AWAY):
        return True
    return isinstance(error, ResponseError) and bool(_WAITED_OUT.search(str(error)))


def backoff(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row: doubling, capped, jittered."""
    first, longest = BACKOFF_SECONDS
    delay: float = min(longest, first * 2.0 ** min(failures - 1, 20))
    return delay * random.uniform(0.8, 1.2)  # noqa: S311 (no secret: drivers must not retry in step)


def leave_if_cancelled() -> None:
    """Obey a cancellation that redis-py has swallowed, as it does at some of its awaits."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError


__all__ = ["RedisError", "backoff", "connect", "is_transient", "leave_if_cancelled", "locate"]
