"""What the wake-up list reports to an observer."""

from redis.asyncio import Redis

from jobgroup import Store
from jobgroup.store.observer import Observer


class Recorded(Observer):
    """The calls of scripts, and whether their time is known."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, bool]] = []

    def script_answered(self, script: str, calls: int, seconds: float | None) -> None:
        self.calls.append((script, calls, seconds is not None))


async def test_a_call_that_waits_is_reported_without_a_time(
    operator_redis: Redis, prefix: str
) -> None:
    observer = Recorded()
    wakeups = Store(operator_redis, prefix, observer=observer).wakeups
    await wakeups.settle()  # loads the script
    observer.calls.clear()
    await wakeups.settle()
    await wakeups.wait_and_settle(0.01)
    assert observer.calls == [("settle_wakeups", 1, True), ("settle_wakeups", 1, False)]


async def test_all_calls_of_a_round_trip_are_reported(operator_redis: Redis, prefix: str) -> None:
    observer = Recorded()
    store = Store(operator_redis, prefix, observer=observer)
    await store.read("none")  # loads the script
    observer.calls.clear()
    await store.read_many(["a", "b", "c"])
    assert observer.calls == [("read_group", 3, True)]
