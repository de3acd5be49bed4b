"""A limit of the requests to the API server: a token bucket, as in client-go."""

import asyncio
import time
from collections.abc import Awaitable, Callable


class TokenBucket:
    """Allows `burst` requests at once, and `qps` a second after that; the others wait in order."""

    def __init__(
        self,
        qps: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        # Less than 0 while requests wait: each has taken a token that does not exist yet.
        self._tokens = float(burst)
        self._filled_at = clock()

    async def take(self) -> None:
        """Wait until a request may be sent."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now
        self._tokens -= 1
        if self._tokens < 0:
            try:
                await self._sleep(-self._tokens / self._qps)
            except asyncio.CancelledError:
                self._tokens += 1
                raise
