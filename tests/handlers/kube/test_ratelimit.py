"""The token bucket, with a clock of the test."""

import asyncio

import pytest

from handlers.kube.ratelimit import TokenBucket


class Clock:
    """A clock that only moves when a test moves it, and the waits that were requested."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


async def waits(bucket: TokenBucket, clock: Clock, count: int) -> list[float]:
    """Send this number of requests at once; return how long each that must wait waits."""
    clock.waits.clear()
    for _ in range(count):
        await bucket.take()
    return [round(wait, 6) for wait in clock.waits]


async def test_a_burst_passes_and_the_rest_is_sent_at_the_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(10, 3, clock, clock.sleep)
    assert await waits(bucket, clock, 3) == []
    assert await waits(bucket, clock, 3) == [0.1, 0.2, 0.3]


async def test_tokens_come_back_with_time_up_to_the_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(10, 3, clock, clock.sleep)
    await waits(bucket, clock, 5)
    clock.now += 0.2  # the time of the two that waited
    assert await waits(bucket, clock, 1) == [0.1]
    clock.now += 3600
    assert await waits(bucket, clock, 4) == [0.1]


async def test_a_request_that_is_cancelled_while_it_waits_returns_its_token() -> None:
    clock = Clock()

    async def cancelled(_: float) -> None:
        raise asyncio.CancelledError

    bucket = TokenBucket(10, 1, clock, cancelled)
    await bucket.take()
    for _ in range(5):
        with pytest.raises(asyncio.CancelledError):
            await bucket.take()
    clock.now += 0.2
    await bucket.take()  # would raise if it had to wait
