"""A blocking Redis client with an asynchronous interface, and coroutines without a loop.

Histories consist of about 100,000 small steps without concurrency. An event loop would take several
times as long as the steps themselves, and no coroutine here ever has to wait.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

import redis
from redis.asyncio import Redis

from testbed.servers.redis_kinds import master_of

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    raise AssertionError("the coroutine had to wait")


def connect(url: str, prefix: str) -> Redis:
    """Open a client for `run`, of the server that has the keys of a prefix now."""
    client = redis.Redis.from_url(
        master_of(url, prefix),
        decode_responses=True,
        encoding_errors="replace",
        driver_info=None,  # the rights in the docs do not include CLIENT SETINFO
    )
    return cast(Redis, _Instant(client))


class _Instant:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def pipeline(self, transaction: bool) -> "_InstantPipeline":
        return _InstantPipeline(self._client.pipeline(transaction))

    def register_script(self, source: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return _instantly(self._client.register_script(source))

    async def aclose(self) -> None:
        self._client.close()

    def __getattr__(self, name: str) -> Any:
        return _instantly(getattr(self._client, name))


class _InstantPipeline:
    def __init__(self, pipeline: Any) -> None:
        self.execute = _instantly(pipeline.execute)
        self.execute_command = pipeline.execute_command


def _instantly(call: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def answer(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return answer
