"""A work queue of keys with the verbs of client-go: each key is queued and processed at most once.

kopf calls a handler once per event and drops an event whose handler fails. So the handlers only add
keys to a work queue, and the workers of a controller process them: `get`, reconcile, then `forget`
or `add_rate_limited`, then `done`.

Keys that are due are served in turns by namespace. Large keys have their own workers: a worker asks
for keys that are large, or for keys that are not, so a large one never delays a small one.

A patient key, one that was added with `add_when_idle`, gives way to all others of its size for a
limited time.

Differences from client-go: the earlier of two times wins in every case, also while a key is being
processed. After an error the delay of the rate limiter replaces whatever was added while the key
was processed: an event does not make a failing key retry at once. `get_due` returns a batch, for a
controller that reads the inputs of many keys in one call.
"""

import asyncio
import contextlib
import heapq
import itertools
import math
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from handlers.kube.turns import Turns
from jobgroup.model.clock import backoff

# The longest delay that a server can request with Retry-After.
MAX_RETRY_AFTER_SECONDS = 60
# The heap is rebuilt when it holds this many outdated entries more than valid ones.
SPARE = 100

Key = TypeVar("Key", bound=Hashable)


class WorkQueue(Generic[Key]):
    """Keys that wait for their time, and keys that are being processed."""

    def __init__(
        self,
        namespace_of: Callable[[Key], str] = lambda _: "",
        is_large: Callable[[Key], bool] = lambda _: False,
    ) -> None:
        self._is_large = is_large
        # When each queued key is due.
        self._due: dict[Key, float] = {}
        # Keys that were not due yet. Entries that do not match _due are outdated: their key was
        # moved forward or discarded.
        self._heap: list[tuple[float, int, Key]] = []
        # Keys that are due, by whether they are large.
        self._ready = {large: Turns[Key](namespace_of) for large in (False, True)}
        # Keys being processed, and when each is due again.
        self._processing: dict[Key, float | None] = {}
        # Queued keys that give way to others, and until when, by whether they are large.
        self._patient: dict[bool, dict[Key, float]] = {False: {}, True: {}}
        self._failures: dict[Key, int] = {}
        self._order = itertools.count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due) + len(self._processing)

    def add(self, key: Key) -> None:
        """Add a key that is due now."""
        self.add_after(key, 0)

    def add_after(self, key: Key, seconds: float) -> None:
        """Add a key that is due after a delay, unless it is due sooner already."""
        due = time.monotonic() + seconds
        if key in self._processing:
            again = self._processing[key]
            self._processing[key] = due if again is None else min(again, due)
        elif key not in self._due or due < self._due[key]:
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            if len(self._heap) > 2 * len(self._due) + SPARE:
                self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
                heapq.heapify(self._heap)
            self._changed.set()

    def add_when_idle(self, key: Key, at_most: float) -> None:
        """Add a key that is due as soon as no other of its size is due or being processed.

        It is due after `at_most` seconds in any case, and then before others of its namespace.
        """
        self._patient[self._is_large(key)][key] = time.monotonic() + at_most
        self.add_after(key, at_most)

    def add_rate_limited(self, key: Key, at_least: float = 0) -> float:
        """Add a key after an error; return its delay, which grows with each error in a row."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = max(backoff(failures), min(at_least, MAX_RETRY_AFTER_SECONDS))
        self._end_patience(key)
        if key in self._processing:
            self._processing[key] = None
        self.add_after(key, delay)
        return delay

    async def get(self, large: bool = False) -> Key:
        """Wait until a key of this size is due, and mark it as being processed."""
        while (key := self._pop(large)) is None:
            await self._wait_for_change(math.inf)
        return key

    def get_due(self) -> list[Key]:
        """Return all keys that are due now, and mark them as being processed."""
        return [*iter(lambda: self._pop(False), None), *iter(lambda: self._pop(True), None)]

    async def wait(self, seconds: float = math.inf) -> None:
        """Wait until a key is due, until one is added, or at most for this time."""
        self._find_ready()
        if not any(self._ready.values()):
            await self._wait_for_change(seconds)

    async def _wait_for_change(self, seconds: float) -> None:
        """Wait until another key is due, until one is added, or at most for this time."""
        self._changed.clear()
        wait = min(seconds, self._next_due() - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if wait == math.inf else wait):
                await self._changed.wait()

    def seconds_until_due(self) -> float:
        """Return the seconds until the next key is due, including keys that are being processed."""
        if any(self._ready.values()):
            return 0.0
        again = (due for due in self._processing.values() if due is not None)
        return min([self._next_due(), *again]) - time.monotonic()

    def done(self, key: Key) -> None:
        """Mark a key as processed; if it was added meanwhile, it is queued again."""
        again = self._processing.pop(key, None)
        if again is not None:
            self.add_after(key, again - time.monotonic())
        if any(waiting and self._is_idle(large) for large, waiting in self._patient.items()):
            self._changed.set()

    def forget(self, key: Key) -> None:
        """Reset the rate limiter of a key that was processed without an error."""
        self._failures.pop(key, None)

    def discard(self, key: Key) -> None:
        """Remove a key whose object was deleted, unless it is being processed."""
        self._due.pop(key, None)
        self._end_patience(key)
        for ready in self._ready.values():
            ready.discard(key)
        self._failures.pop(key, None)

    def is_busy(self, large: bool = False) -> bool:
        """Return whether a key of this size is due, or more than one is being processed."""
        self._find_ready()
        return bool(self._ready[large]) or self._count_processing(large) > 1

    def is_dirty(self, key: Key) -> bool:
        """Return whether a key is due, being processed, or waiting for a retry after an error."""
        is_due = self._due.get(key, math.inf) <= time.monotonic()
        return is_due or key in self._processing or key in self._failures

    def _next_due(self) -> float:
        """Return when the next key becomes due; ignore keys that are due already."""
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) == due:
                return due
            heapq.heappop(self._heap)
        return math.inf

    def _find_ready(self) -> None:
        """Move the keys that are due to the turns."""
        now = time.monotonic()
        while self._next_due() <= now:
            _, _, key = heapq.heappop(self._heap)
            self._ready[self._is_large(key)].add(key)
        for large, waiting in self._patient.items():
            while waiting:
                key, latest = next(iter(waiting.items()))
                if key in self._processing or (latest > now and not self._is_idle(large)):
                    break
                del waiting[key]
                self._ready[large].add(key, first=True)

    def _is_idle(self, large: bool) -> bool:
        return not self._ready[large] and not self._count_processing(large)

    def _count_processing(self, large: bool) -> int:
        return sum(self._is_large(key) == large for key in self._processing)

    def _end_patience(self, key: Key) -> None:
        for waiting in self._patient.values():
            waiting.pop(key, None)

    def _pop(self, large: bool) -> Key | None:
        """Take the next key of this size, if one is due."""
        self._find_ready()
        ready = self._ready[large]
        if not ready:
            return None
        key = ready.pop()
        del self._due[key]
        self._end_patience(key)
        self._processing[key] = None
        return key


def soonest(*waits: float | None) -> float | None:
    """Return the shortest of these waits; ignore None, which stands for no limit."""
    return min((wait for wait in waits if wait is not None), default=None)
