"""Turns: one item of each namespace, then the next one of each."""

import asyncio

import pytest

from handlers.kube.turns import TurnQueue, Turns


def namespace(item: str) -> str:
    """Return the namespace of an item such as shop/order."""
    return item.partition("/")[0]


def drained(turns: Turns[str]) -> list[str]:
    found = []
    while turns:
        found.append(turns.pop())
    return found


def turns_of(*items: str) -> Turns[str]:
    turns = Turns(namespace)
    for item in items:
        turns.add(item)
    return turns


def test_namespaces_take_turns_and_each_is_first_in_first_out() -> None:
    turns = turns_of("a/1", "a/2", "a/3", "b/1", "c/1", "c/2")
    assert len(turns) == 6
    assert drained(turns) == ["a/1", "b/1", "c/1", "a/2", "c/2", "a/3"]


def test_items_that_are_first_are_before_the_others_of_their_namespace() -> None:
    turns = turns_of("a/1", "a/2", "a/3", "b/1")
    for item in ("a/3", "a/4", "a/2"):
        turns.add(item, first=True)
    turns.add("a/4")
    turns.discard("a/2")
    assert len(turns) == 4
    assert drained(turns) == ["a/3", "b/1", "a/4", "a/1"]


def test_a_namespace_that_comes_back_does_not_overtake() -> None:
    turns = turns_of("a/1", "b/1", "b/2", "c/1")
    assert turns.pop() == "a/1"
    turns.add("a/2")
    assert drained(turns) == ["b/1", "c/1", "a/2", "b/2"]


def test_an_item_is_there_once_and_keeps_its_place() -> None:
    turns = turns_of("a/1", "a/2", "a/1")
    assert drained(turns) == ["a/1", "a/2"]


def test_a_discarded_item_is_not_served_and_its_namespace_keeps_its_turn() -> None:
    turns = turns_of("a/1", "a/2", "b/1")
    for item in ("a/1", "b/1", "b/2", "c/1"):
        turns.discard(item)
    assert drained(turns) == ["a/2"]
    with pytest.raises(StopIteration):
        turns.pop()


async def test_a_queue_of_asyncio_serves_namespaces_in_turns() -> None:
    queue = TurnQueue(namespace)
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    for item in ("a/1", "a/2", "a/3", "b/1"):
        queue.put_nowait(item)
    assert await getting == "a/1"
    assert [queue.get_nowait() for _ in range(queue.qsize())] == ["b/1", "a/2", "a/3"]
