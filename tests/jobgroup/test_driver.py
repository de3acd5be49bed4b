"""The driver: transient errors, reports and resyncs."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import exceptions
from redis.asyncio import Redis

from jobgroup import Driver, JobGroups, Store, connect
from jobgroup.model.clock import backoff
from jobgroup.store.connection import is_transient
from jobgroup.store.observer import Observer
from testbed.servers.redis import RedisServer
from testbed.support.sagas import peek
from testbed.support.waiting import PATIENCE_SECONDS, eventually, never_returns

# The passes in which a resync reviews groups.
REVIEWS = 5
JOBS = [{"name": "pay", "queueName": "payments"}, {"name": "ship", "queueName": "shipping"}]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Start a Redis that the test may break."""
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
async def groups(server: RedisServer) -> AsyncIterator[JobGroups]:
    """Open the API on that Redis."""
    async with JobGroups.connect(server.url) as groups:
        yield groups


@pytest.fixture
def redis(groups: JobGroups) -> Redis:
    """Open the same Redis without the API."""
    return groups.store.redis


def test_the_backoff_doubles_up_to_half_a_minute_and_is_jittered() -> None:
    for failures, expected in [(1, 0.1), (2, 0.2), (5, 1.6), (9, 25.6), (10, 30), (10_000, 30)]:
        delays = {backoff(failures) for _ in range(200)}
        assert expected * 0.8 <= min(delays) < expected < max(delays) <= expected * 1.2


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (exceptions.ConnectionError("refused"), True),
        (exceptions.TimeoutError("read"), True),
        (exceptions.BusyLoadingError("LOADING"), True),
        (exceptions.ReadOnlyError("READONLY"), True),
        (exceptions.OutOfMemoryError("OOM"), True),
        (exceptions.ResponseError("BUSY Redis is busy running a script"), True),
        (exceptions.MasterDownError("Link with MASTER is down"), True),
        (exceptions.AuthenticationError("NOAUTH"), False),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), False),
        (ValueError("ours"), False),
    ],
)
def test_which_errors_are_transient(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient


async def test_the_backoff_grows_while_redis_is_read_only(
    groups: JobGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    class Enough(Exception):
        pass

    async def refuse(*_: float) -> None:
        raise exceptions.ReadOnlyError("READONLY")

    def count(failures: int, _: float) -> float:
        counted.append(failures)
        if failures == 3 or len(counted) > 3:
            raise Enough
        return 0.0

    monkeypatch.setattr(groups.store.wakeups, "wait_and_settle", refuse)
    monkeypatch.setattr("jobgroup.driver.backoff", count)
    with pytest.raises(ExceptionGroup) as raised:
        await Driver(groups.store).run()
    assert raised.group_contains(Enough)
    assert counted == [1, 2, 3]


async def test_a_corrupt_group_is_reported_and_does_not_affect_others(
    groups: JobGroups, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    bad = await groups.add_group("bad", JOBS)
    good = await groups.add_group("good", JOBS)
    await redis.set(f"bull:_jobgroups:{bad.group_id}:unsuccessful", "not a ledger")
    await redis.delete(*(job.job_key for job in good.jobs))
    await redis.rpush("bull:_jobgroups:wait", bad.group_id, good.group_id)
    reported: list[tuple[str, str]] = []
    driver = Driver(groups.store, on_error=lambda gid, error: reported.append((gid, str(error))))
    await driver.drain()
    assert [gid for gid, _ in reported] == [bad.group_id]
    assert "WRONGTYPE" in reported[0][1]
    assert [vars(record)["group"] for record in caplog.records] == [bad.group_id]
    state = await peek(groups.store, good.group_id)
    assert state is not None
    assert state.state == "FAILED"
    assert await redis.llen("bull:_jobgroups:wait") == 0
    # Mended, it is found again by the next resync.
    await redis.delete(f"bull:_jobgroups:{bad.group_id}:unsuccessful")
    await redis.delete(*(job.job_key for job in bad.jobs))
    assert await driver.resync() == 1


async def test_the_entry_of_a_missing_group_is_removed(groups: JobGroups, redis: Redis) -> None:
    await redis.rpush("bull:_jobgroups:wait", "nobody", "nobody-undo")
    driver = Driver(groups.store)
    await driver.drain()
    assert await redis.llen("bull:_jobgroups:wait") == 0
    assert driver.counters.errors == 0


async def test_a_wrong_password_is_reported_and_tried_again(
    server: RedisServer, groups: JobGroups, redis: Redis
) -> None:
    await redis.config_set("requirepass", "secret")
    heard = asyncio.Event()
    async with connect(server.url) as stranger:

        def hear(group_id: str, error: Exception) -> None:
            assert isinstance(error, exceptions.AuthenticationError)
            heard.set()

        driver = Driver(Store(stranger), on_error=hear)
        task = asyncio.create_task(driver.run())
        await asyncio.wait_for(heard.wait(), 60)
        assert not task.done()
        await redis.config_set("requirepass", "")
        while not driver.counters.resyncs:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])


async def test_a_resync_of_healthy_groups_repairs_nothing(groups: JobGroups) -> None:
    for _ in range(150):
        await groups.add_group("order", JOBS)
    driver = Driver(groups.store)
    assert await driver.resync() == 0
    assert driver.counters.repairs == 0
    assert driver.counters.settles == 0


async def test_a_resync_finds_a_removed_member(groups: JobGroups, redis: Redis) -> None:
    node = await groups.add_group("order", JOBS)
    # What stock clients do when a waiting job is removed: it leaves the books without an entry.
    await redis.lrem("bull:payments:wait", 1, node.jobs[0].job_id)
    await redis.delete(node.jobs[0].job_key)
    await redis.srem(f"bull:_jobgroups:{node.group_id}:dependencies", node.jobs[0].job_key)
    driver = Driver(groups.store)
    assert await driver.resync() == 1
    state = await peek(groups.store, node.group_id)
    assert state is not None
    assert (state.state, state.reason) == ("FAILED", "removed from its queue")
    assert (state.failed_count, state.cancelled_count) == (1, 1)
    assert await driver.resync() == 0


async def test_changes_are_passed_to_the_callback(groups: JobGroups) -> None:
    node = await groups.add_group("order", JOBS)
    told: list[str] = []
    driver = Driver(groups.store, on_settled=lambda group: told.append(group.state))
    await driver.resync()
    assert told == []
    await groups.store.settle([node.group_id], request="DeadlineExceeded")
    await groups.store.redis.rpush("bull:_jobgroups:wait", node.group_id)
    await driver.drain()
    state = await peek(groups.store, node.group_id)
    assert state is not None
    assert (state.state, state.reason, state.failed_job_id) == ("FAILED", "DeadlineExceeded", "")


class ShiftedClock:
    """The clock of the machine, plus a shift."""

    def __init__(self) -> None:
        self.shift = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.shift


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ShiftedClock:
    clock = ShiftedClock()
    monkeypatch.setattr("jobgroup.driver.time", clock)
    return clock


@contextlib.asynccontextmanager
async def running(driver: Driver) -> AsyncIterator[None]:
    task = asyncio.create_task(driver.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_resting_driver_is_alive(groups: JobGroups, clock: ShiftedClock) -> None:
    driver = Driver(groups.store, resync_seconds=3600, recheck_seconds=0.01)

    async def rests() -> bool:
        return driver.counters.resyncs >= REVIEWS

    async def is_alive() -> bool:
        return driver.alive_at >= shifted

    async with running(driver):
        await eventually(rests)
        clock.shift = 1000
        shifted = clock.monotonic()
        await eventually(is_alive)


@pytest.mark.parametrize(
    ("place", "call"),
    [
        ("reviews", "review"),
        ("reviews", "short"),
        ("reviews", "unparked"),
        ("reviews", "reclaim"),
        ("reviews", "hints"),
        ("wakeups", "wait_and_settle"),
    ],
)
async def test_a_driver_one_of_whose_loops_hangs_is_not_alive(
    groups: JobGroups,
    redis: Redis,
    clock: ShiftedClock,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    call: str,
) -> None:
    await groups.add_group("order", JOBS)
    hanging = asyncio.Event()

    async def hang(*_: object) -> None:
        hanging.set()
        await never_returns()

    monkeypatch.setattr(getattr(groups.store, place), call, hang)
    driver = Driver(groups.store, resync_seconds=0.01, recheck_seconds=0.01)
    async with running(driver):
        await asyncio.wait_for(hanging.wait(), PATIENCE_SECONDS)
        hung_at = clock.monotonic()
        clock.shift = 1000
        passes = driver.counters.resyncs + 10 * REVIEWS
        await redis.rpush("bull:_jobgroups:wait", "nobody")
        await redis.zadd("bull:_jobgroups:marker", {"0": 0})

        async def others_run() -> bool:
            settled = driver.counters.wakeups > 0 or place == "wakeups"
            return settled and driver.counters.resyncs >= passes

        await eventually(others_run)
        assert driver.alive_at <= hung_at


@pytest.mark.parametrize("error", [None, exceptions.ConnectionError("closed")], ids=["ok", "error"])
async def test_a_driver_stops_although_a_call_suppresses_the_cancellation(
    groups: JobGroups, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    short, waits = groups.store.reviews.short, asyncio.Event()

    async def suppress(*args: Any) -> Any:
        with contextlib.suppress(asyncio.CancelledError):
            waits.set()
            await never_returns()
        if error:
            raise error
        return await short(*args)

    monkeypatch.setattr(groups.store.reviews, "short", suppress)
    monkeypatch.setattr("jobgroup.driver.backoff", lambda _: 3600)
    task = asyncio.create_task(Driver(groups.store, resync_seconds=3600).run())
    await asyncio.wait_for(waits.wait(), PATIENCE_SECONDS)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=PATIENCE_SECONDS)
    assert done


class Reviewer(Observer):
    """A driver without pauses, and how often it has called each script."""

    def __init__(self, redis: Redis) -> None:
        self.calls: Counter[str] = Counter()
        store = Store(redis, observer=self)
        self.driver = Driver(store, resync_seconds=0.01, recheck_seconds=0.01)

    def script_answered(self, script: str, calls: int, _: float | None) -> None:
        self.calls[script] += calls

    async def calls_again(self, script: str) -> None:
        """Wait until it has called a script some more times."""
        enough = self.calls[script] + 3

        async def called() -> bool:
            return self.calls[script] >= enough

        await eventually(called)


async def test_of_several_drivers_one_reviews_until_it_ends(
    groups: JobGroups, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobgroup.driver.ASK_SECONDS", 0.02)
    await groups.add_group("order", JOBS)
    first, second = Reviewer(redis), Reviewer(redis)
    async with running(first.driver):
        await first.calls_again("review_groups")
        # The machine may stand still for longer than a claim lasts.
        monkeypatch.setattr("jobgroup.driver.CLAIM_SECONDS", 3600)
        await first.calls_again("claim_reviews")
        async with running(second.driver):
            await second.calls_again("claim_reviews")
            await first.calls_again("review_groups")
            # It still checks the groups that it settled itself.
            await second.calls_again("reclaim_wakeups")
            assert second.calls["review_groups"] == 0
            monkeypatch.setattr("jobgroup.driver.CLAIM_SECONDS", 1)
            await first.calls_again("claim_reviews")
    async with running(second.driver):
        await second.calls_again("review_groups")


async def test_a_driver_that_lacks_a_right_for_reviews_leaves_them_to_another(
    server: RedisServer, groups: JobGroups
) -> None:
    async def reviews(driver: Driver) -> None:
        async def is_reviewing() -> bool:
            return driver.is_reviewing

        await eventually(is_reviewing)

    server.call("ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all")
    async with JobGroups.connect(f"redis://limited:pw@{server.address}/0") as limited:
        first = Driver(limited.store, resync_seconds=0.1, name="first")
        second = Driver(groups.store, resync_seconds=0.1, name="second")
        async with running(first):
            await reviews(first)
            server.call("ACL", "SETUSER", "limited", "-zcount")
            async with running(second):
                await reviews(second)
                assert not first.is_reviewing
