"""The resync finds groups that changed although nothing woke the driver. The driver runs it.

People and foreign clients remove jobs, retry them, pause queues and take wake-ups. The resync
reads all groups in pages and settles those whose keys do not add up. After each page it rests for a
multiple of the time that the page took. So its share of the time is bounded however many groups
there are, and a wake-up waits for one page at most.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

from jobgroup.model.snapshot import State
from jobgroup.store.connection import leave_if_cancelled
from jobgroup.store.reviews import Cursor
from jobgroup.store.store import Store

logger = logging.getLogger(__name__)

# The share of the time that each kind of work may take.
RUNNING_SHARE = 1 / 10
SHARE = 1 / 20
IDLE_SHARE = 1 / 40
# Groups that are settled at a time, and queues whose events are read at a time.
BATCH = 20
MAX_QUEUES = 1000

RUNNING: tuple[State, ...] = ("ACTIVE", "COMPENSATING")
FAILED: tuple[State, ...] = ("FAILED", "FAILED_COMPENSATION")


class Settle(Protocol):
    """Settle groups; return how many of them moved on without a wake-up."""

    async def __call__(self, group_ids: list[str], queue: str = "") -> int: ...


class Resync:
    """Reviews the groups of one Redis.

    `waiting` returns the groups that were given up and have members that can still finish: not
    every outcome of these members wakes the driver.
    """

    def __init__(
        self,
        store: Store,
        settle: Settle,
        waiting: Callable[[], Iterable[str]],
        on_pass: Callable[[int], None],
    ) -> None:
        self._reviews = store.reviews
        self._settle = settle
        self._waiting = waiting
        self._on_pass = on_pass
        # The queues of running and of failed groups, and the last event that was read of each.
        self._running_queues: set[str] = set()
        self._failed_queues: set[str] = set()
        self._events: dict[str, str] = {}

    def turns(self, seconds: float, recheck_seconds: float) -> list[Callable[[], Awaitable[float]]]:
        """Return the periodic work: functions that return how many seconds to rest after them."""

        reviews = [
            (self._review_ledgers, RUNNING_SHARE),
            (self._review_running, RUNNING_SHARE),
            (self._review_failed, SHARE),
            (self._review_completed, IDLE_SHARE),
            (self._review_unparked, IDLE_SHARE),
        ]
        return [
            *(partial(_paced, pages, share, seconds, self._on_pass) for pages, share in reviews),
            partial(_paced, self._recheck, SHARE, recheck_seconds),
            partial(_paced, self._follow_hints, SHARE, recheck_seconds),
        ]

    async def review_everything(self) -> int:
        """Review every group without a rest; return how many moved on without a wake-up."""
        repaired = 0
        for pages in (
            self._recheck(),
            self._review_ledgers(),
            self._review_running(),
            self._review_failed(),
            self._review_completed(),
            self._review_unparked(),
        ):
            repaired += sum([page async for page in pages])
        self._on_pass(repaired)
        return repaired

    async def _recheck(self) -> AsyncIterator[int]:
        await self._reclaim()
        yield 0
        for batch in _batches(list(self._waiting())):
            yield await self._settle(batch)

    async def _reclaim(self) -> None:
        reclaimed = await self._reviews.reclaim()
        if reclaimed.groups:
            logger.warning(
                "a foreign client took %d groups from the queue _jobgroups (workers: %s); they were"
                " put back: stop the client, because only drivers may use this queue",
                len(reclaimed.groups),
                ", ".join(reclaimed.workers) or "unknown",
            )
        if reclaimed.paused:
            logger.warning("a foreign client paused the queue _jobgroups; it was resumed")

    async def _follow_hints(self) -> AsyncIterator[int]:
        """Settle the groups whose jobs people removed or retried, as far as events name them."""
        for batch in _batches(list(self._events)):
            more = True
            while more:
                events = {queue: self._events[queue] for queue in batch if queue in self._events}
                hints = await self._reviews.hints(events)
                self._events |= {queue: hint.last for queue, hint in hints.items()}
                groups = [group_id for hint in hints.values() for group_id in hint.groups]
                yield await self._settle_all(list(dict.fromkeys(groups)))
                more = any(hint.more for hint in hints.values())

    async def _review_running(self) -> AsyncIterator[int]:
        self._running_queues = queues = set[str]()
        for state in RUNNING:
            async for repaired in self._review(state, queues):
                yield repaired
        self._follow_queues()

    async def _review_ledgers(self) -> AsyncIterator[int]:
        """Settle running groups of which a stock client removed jobs: a review of sizes alone."""
        for state in RUNNING:
            page = Cursor()
            while True:
                found = await self._reviews.short(state, page)
                yield await self._settle_all(found.due)
                if not found.cursor:
                    break
                page = found

    def _review_completed(self) -> AsyncIterator[int]:
        return self._review("COMPLETED", set())

    async def _review_failed(self) -> AsyncIterator[int]:
        self._failed_queues = queues = set[str]()
        for state in FAILED:
            async for repaired in self._review(state, queues):
                yield repaired
        self._follow_queues()

    def _follow_queues(self) -> None:
        queues = sorted(self._running_queues | self._failed_queues)[:MAX_QUEUES]
        self._events = {queue: self._events.get(queue, "") for queue in queues}

    async def _review_unparked(self) -> AsyncIterator[int]:
        """Settle groups that are not parked: somebody may have deleted their pseudo parents."""
        for queue in await self._reviews.owning_queues():
            page = Cursor()
            while True:
                found = await self._reviews.unparked(queue, page)
                restored = await self._settle_all(found.unparked, queue)
                if restored:
                    logger.warning(
                        "a foreign client took or removed %d groups from the queue _jobgroups"
                        " (workers on it: %s); they were restored: stop the client, because only"
                        " drivers may use this queue",
                        restored,
                        ", ".join(await self._reviews.workers()) or "unknown",
                    )
                yield restored
                if not found.cursor:
                    break
                page = found

    async def _review(self, state: State, queues: set[str]) -> AsyncIterator[int]:
        """Settle the parked groups of a state that need it; collect the queues of their jobs."""
        page = Cursor()
        while True:
            found = await self._reviews.review(state, page)
            for group_id in found.discarded:
                logger.warning(
                    "group %s: deleted its keys, because its owning queue was deleted", group_id
                )
            queues.update(found.queues)
            yield await self._settle_all(found.due)
            if not found.cursor:
                return
            page = found

    async def _settle_all(self, group_ids: list[str], queue: str = "") -> int:
        repaired = 0
        for batch in _batches(group_ids):
            repaired += await self._settle(batch, queue)
        return repaired


def _batches(group_ids: list[str]) -> list[list[str]]:
    return [group_ids[n : n + BATCH] for n in range(0, len(group_ids), BATCH)]


async def _paced(
    pages: Callable[[], AsyncIterator[int]],
    share: float,
    seconds: float,
    on_pass: Callable[[int], None] = lambda _: None,
) -> float:
    """Read pages, resting after each; return how long to rest until the next pass is due.

    A pass begins `seconds` after the pass before it began, and later if it took longer.
    """
    begun = time.monotonic()
    page_begun, repaired = begun, 0
    async for found in pages():
        repaired += found
        await asyncio.sleep((time.monotonic() - page_begun) * (1 / share - 1))
        leave_if_cancelled()
        page_begun = time.monotonic()
    on_pass(repaired)
    return max(0.0, begun + seconds - time.monotonic())
