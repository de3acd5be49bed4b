"""Each key at most once in the queue and at most once at work; errors come again, later."""

import asyncio

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
