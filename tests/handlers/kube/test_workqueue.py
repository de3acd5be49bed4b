"""The work queue: each key is queued and processed at most once, and errors are retried."""

import asyncio
import math

import pytest

from handlers.kube.workqueue import WorkQueue, soonest


async def ready(queue: WorkQueue[str]) -> str | None:
    """Return a key that is due now, if there is one."""
    task = asyncio.create_task(queue.get())
    await asyncio.wait({task}, timeout=0.02)
    if task.done():
        return task.result()
    task.cancel()
    return None


async def test_a_key_added_three_times_is_processed_once() -> None:
    queue = WorkQueue[str]()
    for _ in range(3):
        queue.add("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert await ready(queue) is None
    assert len(queue) == 0


async def test_keys_are_returned_in_the_order_of_their_times() -> None:
    queue = WorkQueue[str]()
    queue.add_after("late", 0.03)
    queue.add("first")
    queue.add("second")
    assert [await queue.get() for _ in range(3)] == ["first", "second", "late"]


async def test_the_earlier_of_two_times_wins() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 3600)
    assert await ready(queue) is None
    queue.add("a")
    queue.add_after("a", 3600)
    assert await ready(queue) == "a"
    queue.done("a")
    assert await ready(queue) is None


async def test_a_key_added_while_it_is_processed_is_returned_after_done() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add_after("a", 3600)
    queue.add("a")
    assert await ready(queue) is None
    queue.done("a")
    assert await ready(queue) == "a"


async def test_the_earlier_of_two_times_wins_while_a_key_is_processed() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add_after("a", 3600)
    queue.done("a")
    assert await ready(queue) == "a"


async def test_a_failing_key_is_delayed_longer_each_time_and_delays_no_other() -> None:
    queue = WorkQueue[str]()
    queue.add("bad")
    delays = []
    for _ in range(3):
        while await queue.get() != "bad":
            pass
        queue.add("bad")  # an event that arrives meanwhile does not cancel the delay
        delays.append(queue.add_rate_limited("bad"))
        queue.done("bad")
        queue.add("good")
        assert await ready(queue) == "good"
        queue.done("good")
    assert delays[0] < delays[1] < delays[2]


async def test_waiting_workers_are_woken_by_new_keys() -> None:
    queue = WorkQueue[str]()
    workers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    assert sorted(await asyncio.gather(*workers)) == ["a", "b"]


async def test_a_discarded_key_is_not_returned() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.discard("a")
    assert await ready(queue) is None


async def test_forget_resets_the_rate_limiter() -> None:
    queue = WorkQueue[str]()
    first: list[float] = []
    second: list[float] = []
    for delays in (first, second):
        for _ in range(4):
            queue.add("a")
            assert await queue.get() == "a"
            delays.append(queue.add_rate_limited("a"))
            queue.done("a")
            queue._due.clear()  # drop the delayed key instead of waiting
        queue.forget("a")
    assert second[0] < first[1]


@pytest.mark.parametrize(("requested", "least", "most"), [(0, 0, 1), (7, 7, 7), (3600, 60, 60)])
async def test_a_server_can_request_a_delay_of_at_most_a_minute(
    requested: float, least: float, most: float
) -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    assert least <= queue.add_rate_limited("a", requested) <= most


async def test_outdated_entries_do_not_accumulate() -> None:
    queue = WorkQueue[str]()
    queue.add_after("other", 7200)
    for _ in range(10_000):
        queue.add_after("a", 3600)
        queue.add("a")
        assert await queue.get() == "a"
        queue.done("a")
    assert len(queue) == 1
    assert len(queue._heap) < 1000
    queue.add("b")
    assert await ready(queue) == "b"


async def test_a_key_is_dirty_until_it_was_processed_without_an_error() -> None:
    queue = WorkQueue[str]()
    assert not queue.is_dirty("a")
    queue.add("a")
    assert queue.is_dirty("a")
    assert await queue.get() == "a"
    assert queue.is_dirty("a")
    queue.add_rate_limited("a")
    queue.done("a")
    assert queue.is_dirty("a")
    assert await queue.get() == "a"
    queue.add("a")  # while it is processed
    queue.forget("a")
    queue.done("a")
    assert queue.is_dirty("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert not queue.is_dirty("a")


async def test_a_key_that_is_due_later_is_not_dirty() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add_after("a", 3600)
    queue.done("a")
    assert not queue.is_dirty("a")
    queue.add("a")
    assert queue.is_dirty("a")
    queue.discard("a")
    assert not queue.is_dirty("a")


async def test_a_batch_holds_all_keys_that_are_due_and_no_other() -> None:
    queue = WorkQueue[str]()
    assert queue.get_due() == []
    queue.add("a")
    queue.add("b")
    queue.add_after("late", 3600)
    assert queue.get_due() == ["a", "b"]
    queue.add("a")
    assert queue.get_due() == []
    queue.done("a")
    assert queue.get_due() == ["a"]


async def test_the_next_time_counts_keys_that_are_processed() -> None:
    queue = WorkQueue[str]()
    assert queue.seconds_until_due() == math.inf
    queue.add_after("late", 3600)
    assert 3590 < queue.seconds_until_due() <= 3600
    queue.add("a")
    assert queue.get_due() == ["a"]
    assert queue.seconds_until_due() > 3590
    queue.add("a")
    assert queue.seconds_until_due() <= 0


async def test_a_wait_ends_with_a_new_key_or_with_its_timeout() -> None:
    queue = WorkQueue[str]()
    await queue.wait(0.01)
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)
    queue.add("a")
    async with asyncio.timeout(5):
        await waiting
        await queue.wait()  # returns at once: the key is still due


@pytest.mark.parametrize(
    ("waits", "shortest"), [((), None), ((None,), None), ((3, None, 2.5), 2.5), ((0, 1), 0)]
)
def test_the_soonest_of_several_waits(waits: tuple[float | None, ...], shortest: float) -> None:
    assert soonest(*waits) == shortest


def namespace(key: str) -> str:
    """Return the namespace of a key such as shop/order."""
    return key.partition("/")[0]


def is_large(key: str) -> bool:
    return key.endswith("large")


async def test_namespaces_take_turns() -> None:
    queue = WorkQueue(namespace)
    for key in ("a/1", "a/2", "a/3", "b/1"):
        queue.add(key)
    assert await queue.get() == "a/1"
    queue.add("c/1")
    assert [await queue.get() for _ in range(4)] == ["b/1", "a/2", "c/1", "a/3"]


async def test_a_key_that_is_due_later_takes_no_turn() -> None:
    queue = WorkQueue(namespace)
    queue.add_after("a/late", 3600)
    queue.add("a/1")
    queue.add("b/1")
    queue.add("a/2")
    assert queue.get_due() == ["a/1", "b/1", "a/2"]
    assert len(queue) == 4


async def test_a_key_that_waits_for_its_turn_is_discarded_and_added_again() -> None:
    queue = WorkQueue(namespace)
    for key in ("a/1", "a/2"):
        queue.add(key)
    assert await queue.get() == "a/1"
    queue.discard("a/2")
    assert await ready(queue) is None
    queue.add_after("a/2", 3600)
    assert await ready(queue) is None
    queue.add("a/2")
    assert await ready(queue) == "a/2"


async def test_large_keys_have_their_own_workers() -> None:
    queue = WorkQueue(namespace, is_large)
    small = asyncio.create_task(queue.get())
    large = asyncio.create_task(queue.get(large=True))
    await asyncio.sleep(0)
    for key in ("a/1-large", "a/2-large", "b/1"):
        queue.add(key)
    async with asyncio.timeout(5):
        assert [await small, await large] == ["b/1", "a/1-large"]
    assert await ready(queue) is None
    assert queue.seconds_until_due() <= 0
    assert await queue.get(large=True) == "a/2-large"


async def test_a_large_key_that_becomes_due_wakes_its_worker() -> None:
    queue = WorkQueue(namespace, is_large)
    small = asyncio.create_task(queue.get())
    large = asyncio.create_task(queue.get(large=True))
    await asyncio.sleep(0)
    queue.add_after("a/1-large", 0.02)
    async with asyncio.timeout(5):
        assert await large == "a/1-large"
    assert not small.done()
    small.cancel()


async def test_a_batch_and_a_wait_include_large_keys() -> None:
    queue = WorkQueue(namespace, is_large)
    for key in ("a/1-large", "b/1"):
        queue.add(key)
    assert await queue.get() == "b/1"
    async with asyncio.timeout(5):
        await queue.wait()
    assert queue.get_due() == ["a/1-large"]


async def test_a_patient_key_is_due_as_soon_as_the_queue_is_idle() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add_when_idle("a", 3600)
    queue.add("b")
    queue.done("a")
    assert await queue.get() == "b"
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done("b")
    async with asyncio.timeout(5):
        assert await waiting == "a"
    queue.done("a")
    assert await ready(queue) is None
    assert len(queue) == 0


async def test_an_idle_queue_returns_one_patient_key_at_a_time() -> None:
    queue = WorkQueue[str]()
    for key in ("a", "b"):
        queue.add_when_idle(key, 3600)
    assert await queue.get() == "a"
    assert await ready(queue) is None
    queue.done("a")
    assert await ready(queue) == "b"


async def test_a_large_patient_key_wakes_its_worker() -> None:
    queue = WorkQueue(namespace, is_large)
    queue.add("b/1-large")
    assert await queue.get(large=True) == "b/1-large"
    queue.add_when_idle("a/1-large", 3600)
    large = asyncio.create_task(queue.get(large=True))
    small = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.done("b/1-large")
    async with asyncio.timeout(5):
        assert await large == "a/1-large"
    small.cancel()


async def test_a_small_patient_key_does_not_wait_for_large_ones() -> None:
    queue = WorkQueue(namespace, is_large)
    for key in ("a/1-large", "a/2-large", "b/1"):
        queue.add(key)
    assert await queue.get(large=True) == "a/1-large"
    assert await queue.get() == "b/1"
    assert not queue.is_busy()
    assert queue.is_busy(large=True)
    queue.add_when_idle("b/1", 3600)
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.done("b/1")
    async with asyncio.timeout(5):
        assert await waiting == "b/1"


async def test_a_patient_key_of_one_size_does_not_delay_those_of_the_other() -> None:
    queue = WorkQueue(namespace, is_large)
    queue.add("b/1")
    assert await queue.get() == "b/1"
    for key in ("a/1", "a/1-large"):
        queue.add_when_idle(key, 3600)
    async with asyncio.timeout(5):
        assert await queue.get(large=True) == "a/1-large"
    assert await ready(queue) is None


@pytest.mark.parametrize("is_added_again", [False, True])
async def test_after_its_time_a_patient_key_is_before_the_others_of_its_namespace(
    is_added_again: bool,
) -> None:
    queue = WorkQueue(namespace)
    queue.add("a/1")
    queue.add_when_idle("a/patient", 0.02)
    for key in ("a/2", "b/1"):
        queue.add(key)
    if is_added_again:
        queue.add("a/patient")
    await asyncio.sleep(0.03)
    assert [await queue.get() for _ in range(4)] == ["a/patient", "b/1", "a/1", "a/2"]
    for key in ("a/1", "a/2", "a/patient", "b/1"):
        queue.done(key)
    assert await ready(queue) is None


async def test_a_patient_key_that_is_added_again_is_processed_once() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.add_when_idle("patient", 3600)
    queue.add("patient")
    assert [await queue.get() for _ in range(2)] == ["a", "patient"]
    for key in ("a", "patient"):
        queue.done(key)
    assert await ready(queue) is None


async def test_a_discarded_patient_key_is_not_returned() -> None:
    queue = WorkQueue[str]()
    queue.add_when_idle("a", 3600)
    queue.discard("a")
    assert await ready(queue) is None


async def test_a_queue_is_busy_if_it_has_another_key() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add_after("later", 3600)
    assert not queue.is_busy()
    queue.add("b")
    assert queue.is_busy()
    assert await queue.get() == "b"
    assert queue.is_busy()
    queue.done("b")
    assert not queue.is_busy()


async def test_a_patient_key_waits_after_an_error() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add_when_idle("a", 3600)
    queue.add_rate_limited("a", 30)
    queue.done("a")
    assert await ready(queue) is None
