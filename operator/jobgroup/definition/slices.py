"""Computations that take breaks, so that a large definition does not hold an event loop. Pure.

Such a computation is a generator that yields after each slice of its work. `finish` runs it without
a break; the operator lets other tasks run in between.
"""

from collections.abc import Generator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")
Sliced = Generator[None, None, Value]

# The most jobs or undos of a slice, and how many bytes of JSON end it: one to three milliseconds of
# work, unless a single job or undo is larger.
SLICE = 100
SLICE_BYTES = 32_768


def finish(computation: Sliced[Value]) -> Value:
    """Return the result of a computation."""
    while True:
        try:
            next(computation)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def slices(items: Sequence[Item], sizes: Sequence[int] = ()) -> list[Sequence[Item]]:
    """Split a sequence into slices; `sizes` are the bytes of the items, if they are known."""
    pace, found, start = Pace(), [], 0
    for n, size in enumerate(sizes or [0] * len(items), 1):
        if pace.ends_with(size) or n == len(items):
            found.append(items[start:n])
            start = n
    return found


class Pace:
    """Tells a loop after which items to take a break."""

    def __init__(self) -> None:
        self._items = self._bytes = 0

    def ends_with(self, size: int) -> bool:
        """Count an item of this many bytes; return whether the slice ends with it."""
        self._items += 1
        self._bytes += size
        is_full = self._items >= SLICE or self._bytes >= SLICE_BYTES
        if is_full:
            self._items = self._bytes = 0
        return is_full
