"""A work queue: each key at most once in it and at most once at work, errors retried with backoff.

kopf calls a handler once an event and forgets it if it fails. So its handlers only put keys in
here, and workers of our own take them out.
"""

import asyncio
import contextlib
import heapq
import itertools
import math
import time
from collections.abc import Hashable
from typing import Generic, TypeVar

from jobgroup.connection import backoff

# However long a server asks to be left alone.
MOST_SECONDS = 60
# So many entries that stand for nothing any more are not worth sweeping out.
SPARE = 100

Key = TypeVar("Key", bound=Hashable)


class WorkQueue(Generic[Key]):
    """Keys that wait for their time, and keys at work."""

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        # Keys at work, and when each is wanted again.
        self._working: dict[Key, float | None] = {}
        self._failures: dict[Key, int] = {}
        self._order = itertools.count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due) + len(self._working)

    def add(self, key: Key, delay: float = 0) -> None:
        """Have a key worked on after so many seconds, or sooner if it is to be sooner anyway."""
        due = time.monotonic() + delay
        if key in self._working:
            again = self._working[key]
            self._working[key] = due if again is None else min(again, due)
        elif key not in self._due or due < self._due[key]:
            self._due[key] = due
            if len(self._heap) > 2 * len(self._due) + SPARE:
                # Most of it was moved forward or given up, and would stay until its old time.
                self._heap = [(at, next(self._order), each) for each, at in self._due.items()]
                heapq.heapify(self._heap)
            else:
                heapq.heappush(self._heap, (due, next(self._order), key))
            self._changed.set()

    async def take(self) -> Key:
        """Return the next key that is due."""
        while True:
            wait = None
            while self._heap:
                due, _, key = self._heap[0]
                wait = due - time.monotonic()
                if self._due.get(key) != due:
                    heapq.heappop(self._heap)  # it was moved forward, or given up
                    wait = None
                elif wait > 0:
                    break
                else:
                    heapq.heappop(self._heap)
                    del self._due[key]
                    self._working[key] = None
                    return key
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    def done(self, key: Key) -> None:
        """Say that a key was worked on well."""
        self._failures.pop(key, None)
        again = self._working.pop(key, None)
        if again is not None:
            self.add(key, again - time.monotonic())

    def retry(self, key: Key, at_least: float = 0) -> float:
        """Say that a key was not worked on well; it comes again, later each time."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = max(backoff(failures), min(at_least, MOST_SECONDS))
        # Whatever happened to it meanwhile will be seen then: an error is not retried at once.
        self._working.pop(key, None)
        self.add(key, delay)
        return delay

    def owes(self, key: Key) -> bool:
        """Say whether what a key was added for is still to be done, or to be done again."""
        is_due = self._due.get(key, math.inf) <= time.monotonic()
        return is_due or key in self._working or key in self._failures

    def forget(self, key: Key) -> None:
        """Give a key up, unless somebody works on it."""
        self._due.pop(key, None)
        self._failures.pop(key, None)
