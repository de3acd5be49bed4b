"""Items of several namespaces, served in turns: one of each namespace, then the next one of each.

A namespace with thousands of items delays those of another namespace by one item at a time.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Turns(Generic[Item]):
    """A set of items in the order of their turns; within a namespace, first in, first out.

    Items that were added with `first` are before the other ones of their namespace.
    """

    def __init__(self, namespace_of: Callable[[Item], str]) -> None:
        self._namespace_of = namespace_of
        # The items of each namespace: those that are first, and the others. The namespace whose
        # turn is next is the first. Dictionaries serve as ordered sets.
        self._items: dict[str, tuple[dict[Item, None], dict[Item, None]]] = {}

    def __len__(self) -> int:
        return sum(len(first) + len(others) for first, others in self._items.values())

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: Item, first: bool = False) -> None:
        """Add an item behind all others of its namespace, or only behind those that are first.

        An item that is there already keeps its place, unless it becomes one of the first.
        """
        firsts, others = self._items.setdefault(self._namespace_of(item), ({}, {}))
        if first:
            others.pop(item, None)
            firsts.setdefault(item)
        elif item not in firsts:
            others.setdefault(item)

    def pop(self) -> Item:
        """Take the next item; raise an error if there is none."""
        namespace = next(iter(self._items))
        items = firsts, others = self._items.pop(namespace)
        item = next(iter(firsts or others))
        del (firsts or others)[item]
        if any(items):
            self._items[namespace] = items
        return item

    def discard(self, item: Item) -> None:
        """Remove an item, if it is there."""
        namespace = self._namespace_of(item)
        items = self._items.get(namespace, ())
        for each in items:
            each.pop(item, None)
        if not any(items):
            self._items.pop(namespace, None)


class TurnQueue(asyncio.Queue[Item]):
    """A queue of asyncio that serves namespaces in turns."""

    def __init__(self, namespace_of: Callable[[Item], str]) -> None:
        super().__init__()
        self._queue = Turns(namespace_of)

    def _put(self, item: Item) -> None:
        self._queue.add(item)

    def _get(self) -> Item:
        return self._queue.pop()
