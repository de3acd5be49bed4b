"""The resync: how long it rests, what it does after an error, and which queues it follows."""

import math
from collections.abc import Callable, Mapping

import pytest
from redis import exceptions
from redis.asyncio import Redis

from jobgroup.resync import BATCH, RECENT_SECONDS, Part, Pass, Resync
from jobgroup.store.reviews import EVENTS, Cursor, Hints
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import Sagas, job


class Clock:
    """A clock that only the work moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("jobgroup.resync.time", clock)
    return clock


class Pages:
    """A part of a pass: pages that take time, find groups, and may raise an error once."""

    def __init__(self, clock: Clock, seconds: list[float], errors: list[Exception]) -> None:
        self.begun: list[str] = []
        self._clock = clock
        self._seconds = seconds
        self._errors = errors

    async def __call__(self, after: Cursor) -> tuple[int, Cursor]:
        self.begun.append(after.cursor)
        if after.cursor and self._errors:
            raise self._errors.pop()
        page = int(after.cursor or 0)
        self._clock.now += self._seconds[page]
        last = page + 1 == len(self._seconds)
        return 1, Cursor("" if last else str(page + 1))


def pass_over(*parts: Pages, on_end: Callable[[int], None] = lambda _: None) -> Pass:
    async def all_parts() -> list[Part]:
        return list(parts)

    return Pass(all_parts, 1 / 10, lambda: 60, on_end)


async def test_a_page_is_followed_by_a_rest_of_the_right_share(clock: Clock) -> None:
    each = pass_over(Pages(clock, [0.5, 2, 1], []), Pages(clock, [3, 4], []))
    rests = []
    for _ in range(4):
        rests.append(await each.turn())
        clock.now += rests[-1]
    assert rests == pytest.approx([4.5, 18, 9, 27])


async def test_a_pass_begins_some_seconds_after_the_pass_before_it_began(clock: Clock) -> None:
    ends: list[int] = []
    begun, each = clock.now, pass_over(Pages(clock, [1, 2], []), on_end=ends.append)
    rest = await each.turn()
    clock.now += rest
    assert ends == []
    rest = await each.turn()
    assert ends == [2]
    assert clock.now + rest == pytest.approx(begun + 60)
    # A long pass is followed by the next one, after the rest that its last page needs.
    slow = pass_over(Pages(clock, [100], []))
    assert await slow.turn() == pytest.approx(900)


async def test_a_pass_without_groups_rests(clock: Clock) -> None:
    ends: list[int] = []
    assert await pass_over(on_end=ends.append).turn() == 60
    assert ends == [0]


@pytest.mark.parametrize(
    ("error", "begun"),
    [
        (exceptions.ConnectionError("closed"), ["", "1", "1", "2"]),
        (exceptions.ResponseError("WRONGTYPE"), ["", "1"]),
    ],
    ids=["again", "next part"],
)
async def test_a_pass_continues_after_an_error(
    clock: Clock, error: Exception, begun: list[str]
) -> None:
    ends: list[int] = []
    first, second = Pages(clock, [1, 1, 1], [error]), Pages(clock, [1], [])
    each = pass_over(first, second, on_end=ends.append)
    await each.turn()
    with pytest.raises(type(error)):
        await each.turn()
    while not ends:
        await each.turn()
    assert (first.begun, second.begun) == (begun, [""])


class Followed:
    """A resync that a test drives by hand, and the groups that it settled."""

    def __init__(self, sagas: Sagas, queues: int) -> None:
        self.settled: list[str] = []
        self._ends: list[int] = []
        self.resync = Resync(sagas.groups.store, self._settle, list, self._ends.append)
        self.passes = self.resync.passes(3600, 3600)
        self._batches = math.ceil(queues / BATCH)

    async def _settle(self, group_ids: list[str], queue: str = "", request: str = "") -> int:
        self.settled += group_ids
        return 0

    async def follow_queues(self) -> None:
        """Review the running groups, and find the last event of each of their queues."""
        while not self._ends:
            await self.passes["running"].turn()
        await self.read_events()

    async def read_events(self) -> None:
        """Read a page of the events of each queue."""
        for _ in range(self._batches):
            await self.passes["events"].turn()


async def test_a_busy_queue_does_not_delay_the_hints_of_others(
    sagas: Sagas, redis: Redis, start_client: ClientStarter, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await start_client("bullmq6")
    queues = [f"queue-{n:02}" for n in range(BATCH + 1)]
    order = await sagas.add(*(job("charge", queue) for queue in queues))
    followed = Followed(sagas, len(queues))
    await followed.follow_queues()
    pipeline = redis.pipeline()
    for _ in range(2 * EVENTS):
        pipeline.xadd(f"{sagas.prefix}:{queues[0]}:events", {"event": "waiting", "jobId": "x"})
    await pipeline.execute()
    await client.manage(queues[-1], "remove", job=order.jobs[-1].job_id)
    read: list[list[str]] = []
    hints = sagas.groups.store.reviews.hints

    async def record(asked: Mapping[str, str]) -> dict[str, Hints]:
        read.append(list(asked))
        return await hints(asked)

    monkeypatch.setattr(sagas.groups.store.reviews, "hints", record)
    await followed.read_events()
    assert read == [queues[:-1], queues[-1:]]
    assert followed.settled == [order.group_id]


async def test_the_events_of_a_busy_queue_are_read_without_a_pause(
    sagas: Sagas, redis: Redis
) -> None:
    await sagas.add(job("charge"))
    followed = Followed(sagas, 1)
    await followed.follow_queues()
    events = followed.passes["events"]
    assert await events.turn() > 3000
    pipeline = redis.pipeline()
    for _ in range(2 * EVENTS):
        pipeline.xadd(f"{sagas.prefix}:payments:events", {"event": "waiting", "jobId": "x"})
    await pipeline.execute()
    rests = [await events.turn() for _ in range(3)]
    assert max(rests[:2]) < 3000 < rests[2]


async def test_every_queue_is_followed_however_many_there_are(
    sagas: Sagas, start_client: ClientStarter
) -> None:
    client = await start_client("bullmq6")
    order = await sagas.add(*(job("charge", f"queue-{n:04}") for n in range(1100)))
    followed = Followed(sagas, 1100)
    await followed.follow_queues()
    await client.manage("queue-1099", "remove", job=order.jobs[-1].job_id)
    await followed.read_events()
    assert followed.settled == [order.group_id]
    await sagas.driver.resync()
    await sagas.ends(order.group_id)


async def test_a_review_continues_where_redis_failed(
    sagas: Sagas, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sagas.stop()  # the driver reads pages, too
    for _ in range(150):
        await sagas.add(job("charge"))
    reviews = sagas.groups.store.reviews
    review, begun = reviews.review, list[tuple[str, str]]()

    async def fail_once(state: str, after: Cursor, short: int) -> object:
        begun.append((state, after.cursor))
        if after.cursor and len(begun) == 2:
            raise exceptions.ConnectionError("closed")
        return await review(state, after, short)  # type: ignore[arg-type]

    monkeypatch.setattr(reviews, "review", fail_once)
    running = Followed(sagas, 1).passes["running"]
    await running.turn()
    with pytest.raises(exceptions.ConnectionError):
        await running.turn()
    await running.turn()
    assert begun[1] == begun[2]
    assert begun[1][1] != ""


async def test_a_driver_that_stands_by_follows_the_queues_of_its_failed_groups_for_a_while(
    sagas: Sagas, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sagas.stop()
    await sagas.add(job("charge"))
    followed = Followed(sagas, 1)
    await followed.follow_queues()
    read: list[list[str]] = []
    hints = sagas.groups.store.reviews.hints

    async def record(asked: Mapping[str, str]) -> dict[str, Hints]:
        read.append(list(asked))
        return await hints(asked)

    monkeypatch.setattr(sagas.groups.store.reviews, "hints", record)
    followed.resync.follow(["shipping"], 0)
    await followed.read_events()
    followed.resync.stand_by()
    await followed.read_events()
    assert read == [["payments", "shipping"], ["shipping"]]
    clock.now += RECENT_SECONDS
    followed.resync.stand_by()
    await followed.read_events()
    assert read == [["payments", "shipping"], ["shipping"]]
