"""Each key at most once in the queue and at most once at work; errors come again, later."""

import asyncio

import pytest

from handlers.workqueue import WorkQueue


async def ready(queue: WorkQueue[str]) -> str | None:
    """Return a key that is due now, if one is."""
    task = asyncio.create_task(queue.take())
    await asyncio.wait({task}, timeout=0.02)
    if task.done():
        return task.result()
    task.cancel()
    return None


async def test_a_key_waits_once_however_often_it_is_added() -> None:
    queue = WorkQueue[str]()
    for _ in range(3):
        queue.add("a")
    assert await queue.take() == "a"
    queue.done("a")
    assert await ready(queue) is None
    assert len(queue) == 0


async def test_keys_come_in_the_order_they_are_due() -> None:
    queue = WorkQueue[str]()
    queue.add("late", 0.03)
    queue.add("first")
    queue.add("second")
    assert [await queue.take() for _ in range(3)] == ["first", "second", "late"]


async def test_an_earlier_time_wins_and_a_later_one_does_not() -> None:
    queue = WorkQueue[str]()
    queue.add("a", 3600)
    assert await ready(queue) is None
    queue.add("a")
    queue.add("a", 3600)
    assert await ready(queue) == "a"
    queue.done("a")
    assert await ready(queue) is None


async def test_a_key_added_while_at_work_comes_again_after_it() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a", 3600)
    queue.add("a")
    assert await ready(queue) is None
    queue.done("a")
    assert await ready(queue) == "a"


async def test_a_failed_key_comes_again_later_each_time_and_holds_up_no_other() -> None:
    queue = WorkQueue[str]()
    queue.add("bad")
    delays = []
    for _ in range(3):
        while await queue.take() != "bad":
            pass
        queue.add("bad")  # an event that arrives meanwhile does not make it hurry
        delays.append(queue.retry("bad"))
        queue.add("good")
        assert await ready(queue) == "good"
        queue.done("good")
    assert delays[0] < delays[1] < delays[2]


async def test_a_worker_that_waits_is_woken_by_a_new_key() -> None:
    queue = WorkQueue[str]()
    workers = [asyncio.create_task(queue.take()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    assert sorted(await asyncio.gather(*workers)) == ["a", "b"]


async def test_a_forgotten_key_does_not_come() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.forget("a")
    assert await ready(queue) is None


async def test_what_is_wanted_sooner_while_at_work_stays_so() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    queue.add("a", 3600)
    queue.done("a")
    assert await ready(queue) == "a"


async def test_a_key_that_was_worked_on_well_is_not_blamed_for_what_was() -> None:
    queue = WorkQueue[str]()
    first: list[float] = []
    second: list[float] = []
    for delays in (first, second):
        for _ in range(4):
            queue.add("a")
            assert await queue.take() == "a"
            delays.append(queue.retry("a"))
            queue._due.clear()  # instead of waiting for it
        queue.add("a")
        assert await queue.take() == "a"
        queue.done("a")
    assert second[0] < first[1]


@pytest.mark.parametrize(("asked", "least", "most"), [(0, 0, 1), (7, 7, 7), (3600, 60, 60)])
async def test_a_server_that_asks_to_be_left_alone_is_for_a_minute_at_most(
    asked: float, least: float, most: float
) -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.take() == "a"
    assert least <= queue.retry("a", asked) <= most


async def test_times_that_no_longer_count_take_up_no_room() -> None:
    queue = WorkQueue[str]()
    queue.add("other", 7200)
    for _ in range(10_000):
        queue.add("a", 3600)
        queue.add("a")
        assert await queue.take() == "a"
        queue.done("a")
    assert len(queue) == 1
    assert len(queue._heap) < 1000
    queue.add("b")
    assert await ready(queue) == "b"


async def test_a_key_is_owed_until_it_was_worked_on_well() -> None:
    queue = WorkQueue[str]()
    assert not queue.owes("a")
    queue.add("a")
    assert queue.owes("a")
    assert await queue.take() == "a"
    assert queue.owes("a")
    queue.retry("a")
    assert queue.owes("a")
    assert await queue.take() == "a"
    queue.add("a")  # while it is at work
    queue.done("a")
    assert queue.owes("a")
    assert await queue.take() == "a"
    queue.done("a")
    assert not queue.owes("a")


async def test_a_key_that_comes_back_in_its_own_time_is_not_owed() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a", 3600)
    queue.done("a")
    assert not queue.owes("a")
    queue.add("a")
    assert queue.owes("a")
    queue.forget("a")
    assert not queue.owes("a")
