"""The resync finds groups that changed although nothing woke the driver. The driver runs it.

People and foreign clients remove jobs, retry them, pause queues and take wake-ups. The resync
reads all groups in pages and settles those whose keys do not add up. After each page it rests for a
multiple of the time that the page took. So its share of the time is bounded however many groups
there are, and a wake-up waits for one page at most.

Of several drivers, one does the passes over all groups. The passes of OWN are about groups that a
driver itself has settled, so every driver does them.
"""

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

from jobgroup.model.snapshot import State
from jobgroup.resource import reasons
from jobgroup.store.connection import is_transient, lacks_right
from jobgroup.store.reviews import LONG, SHORT, Cursor
from jobgroup.store.store import Store

logger = logging.getLogger(__name__)

# The share of the time that each kind of work may take.
LEDGER_SHARE = 1 / 6
RUNNING_SHARE = 1 / 8
SHARE = 1 / 20
IDLE_SHARE = 1 / 40
DUE_SHARE = 1 / 8
OWN = frozenset({"waiting", "events"})
# How long a driver that does not review follows the queue of a group that it settled as failed. A
# pass of the driver that reviews finds the queue meanwhile.
RECENT_SECONDS = 60.0
# Groups that are settled at a time, and queues whose events are read at a time.
BATCH = 20

RUNNING: tuple[State, ...] = ("ACTIVE", "COMPENSATING")
FAILED: tuple[State, ...] = ("FAILED", "FAILED_COMPENSATION")

# Does one page of work after a cursor; returns how many groups moved on, and the page. If the
# cursor of the page is empty, it was the last one.
Part = Callable[[Cursor], Awaitable[tuple[int, Cursor]]]
Parts = Callable[[], Awaitable[list[Part]]]


class Settle(Protocol):
    """Settle groups; return how many of them moved on without a wake-up."""

    async def __call__(self, group_ids: list[str], queue: str = "", request: str = "") -> int: ...


class Pass:
    """Work that is repeated: its parts one after the other, each of them page by page.

    A pass begins `seconds` after the pass before it began, and later if that took longer.
    """

    def __init__(
        self,
        parts: Parts,
        share: float,
        seconds: Callable[[], float],
        on_end: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._parts = parts
        self._share = share
        self._seconds = seconds
        self._on_end = on_end
        self._left: deque[Part] = deque()
        self._page = Cursor()
        self._begun = 0.0
        self._repaired = 0

    async def turn(self) -> float:
        """Do one page; return how many seconds to rest after it.

        After a transient error or a missing right, the next turn does the same page again. After
        another error it continues with the next part, so that no key of anybody blocks the parts
        behind it.
        """
        begun = time.monotonic()
        if not self._left:
            self._begun = begun
            self._left.extend(await self._parts())
        if self._left:
            try:
                repaired, self._page = await self._left[0](self._page)
            except Exception as error:
                if not (is_transient(error) or lacks_right(error)):
                    self._next_part()
                raise
            self._repaired += repaired
            if not self._page.cursor:
                self._next_part()
        now = time.monotonic()
        rest = (now - begun) * (1 / self._share - 1)
        if self._left:
            return rest
        self._on_end(self._repaired)
        self._repaired = 0
        return max(rest, self._begun + self._seconds() - now)

    def _next_part(self) -> None:
        self._left.popleft()
        self._page = Cursor()


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
        group_ttl_seconds: int | None = None,
    ) -> None:
        self._group_ttl_seconds = group_ttl_seconds
        self._store = store
        self._reviews = store.reviews
        self._settle = settle
        self._waiting = waiting
        self._on_pass = on_pass
        # The queues of groups by the states of the groups, and the last event read of each queue.
        self._queues: dict[tuple[State, ...], set[str]] = {}
        self._events: dict[str, str] = {}
        # Queues of groups that failed since the pass over the failed groups began, and since when.
        self._recent: dict[str, float] = {}
        # Whether the last pass over the events left some of them.
        self._more_events = False

    def passes(self, seconds: float, recheck_seconds: float) -> dict[str, Pass]:
        """Return the periodic work by name."""

        def review(parts: Parts, share: float) -> Pass:
            return Pass(parts, share, lambda: seconds, self._on_pass)

        return {
            "ledgers": review(self._ledgers, LEDGER_SHARE),
            "running": review(partial(self._groups_in, RUNNING), RUNNING_SHARE),
            "failed": review(partial(self._groups_in, FAILED), SHARE),
            "completed": review(self._completed, IDLE_SHARE),
            "lists": review(self._lists, IDLE_SHARE),
            "unparked": review(self._unparked, IDLE_SHARE),
            "released": Pass(self._released, IDLE_SHARE, lambda: seconds),
            "due": Pass(self._due, DUE_SHARE, lambda: recheck_seconds),
            "old": Pass(self._old, SHARE, lambda: seconds),
            "waiting": Pass(self._recheck, SHARE, lambda: recheck_seconds),
            "events": Pass(self._hints, SHARE, lambda: 0 if self._more_events else recheck_seconds),
        }

    def follow(self, queues: Iterable[str], since: int) -> None:
        """Follow the events of queues from a time on, in milliseconds of the clock of Redis."""
        for queue in queues:
            self._recent[queue] = time.monotonic()
            self._events.setdefault(queue, f"{since}-0")

    def stand_by(self) -> None:
        """Follow only the queues of groups that failed lately, because another driver reviews."""
        self._queues.clear()
        oldest = time.monotonic() - RECENT_SECONDS
        self._recent = {queue: at for queue, at in self._recent.items() if at > oldest}
        self._events = {queue: at for queue, at in self._events.items() if queue in self._recent}

    async def review_everything(self) -> int:
        """Review every group without a rest; return how many moved on without a wake-up."""
        repaired = 0
        for parts in (
            self._recheck,
            self._ledgers,
            partial(self._groups_in, RUNNING),
            partial(self._groups_in, FAILED),
            self._completed,
            self._lists,
            self._unparked,
            self._released,
            self._due,
            self._old,
        ):
            for part in await parts():
                found, page = await part(Cursor())
                repaired += found
                while page.cursor:
                    found, page = await part(page)
                    repaired += found
        self._on_pass(repaired)
        return repaired

    async def _recheck(self) -> list[Part]:
        batches = _batches(list(self._waiting()))
        return [self._reclaim, *(partial(self._settle_batch, batch) for batch in batches)]

    async def _settle_batch(self, batch: list[str], _: Cursor) -> tuple[int, Cursor]:
        return await self._settle(batch), Cursor()

    async def _reclaim(self, _: Cursor) -> tuple[int, Cursor]:
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
        return 0, Cursor()

    async def _hints(self) -> list[Part]:
        """Settle the groups whose jobs people removed or retried, as far as events name them.

        One pass reads a page of each queue, so that a busy queue does not delay the others.
        """
        self._more_events = False
        return [partial(self._read_hints, batch) for batch in _batches(sorted(self._events))]

    async def _read_hints(self, queues: list[str], _: Cursor) -> tuple[int, Cursor]:
        events = {queue: self._events[queue] for queue in queues if queue in self._events}
        hints = await self._reviews.hints(events)
        groups = [group_id for hint in hints.values() for group_id in hint.groups]
        repaired = await self._settle_all(list(dict.fromkeys(groups)))
        self._events |= {queue: hint.last for queue, hint in hints.items()}
        self._more_events |= any(hint.more for hint in hints.values())
        return repaired, Cursor()

    async def _groups_in(self, states: tuple[State, ...]) -> list[Part]:
        """Review the groups in these states, and follow the events of their queues."""
        queues = set[str]()
        recent = dict(self._recent) if states == FAILED else {}

        async def follow(_: Cursor) -> tuple[int, Cursor]:
            self._queues[states] = queues
            self._recent = {q: at for q, at in self._recent.items() if recent.get(q) != at}
            followed = set(self._recent).union(*self._queues.values())
            self._events = {queue: self._events.get(queue, "") for queue in followed}
            return 0, Cursor()

        return [*(partial(self._review, state, queues) for state in states), follow]

    async def _completed(self) -> list[Part]:
        return [partial(self._review, "COMPLETED", set())]

    async def _lists(self) -> list[Part]:
        """Review the running groups again, and read longer lists in search of their jobs."""
        return [partial(self._review, state, set(), short=LONG) for state in RUNNING]

    async def _ledgers(self) -> list[Part]:
        return [partial(self._review_ledgers, state) for state in RUNNING]

    async def _review_ledgers(self, state: State, after: Cursor) -> tuple[int, Cursor]:
        """Settle running groups of which a stock client removed jobs: a review of sizes alone."""
        found = await self._reviews.short(state, after)
        return await self._settle_all(found.due), found

    async def _unparked(self) -> list[Part]:
        queues = await self._reviews.owning_queues()
        return [partial(self._review_unparked, queue) for queue in queues]

    async def _review_unparked(self, queue: str, after: Cursor) -> tuple[int, Cursor]:
        """Settle groups that are not parked: somebody may have deleted their pseudo parents."""
        found = await self._reviews.unparked(queue, after)
        restored = await self._settle_all(found.unparked, queue)
        if restored:
            logger.warning(
                "a foreign client took or removed %d groups from the queue _jobgroups"
                " (workers on it: %s); they were restored: stop the client, because only"
                " drivers may use this queue",
                restored,
                ", ".join(await self._reviews.workers()) or "unknown",
            )
        return restored, found

    async def _released(self) -> list[Part]:
        return [self._remove_released]

    async def _remove_released(self, after: Cursor) -> tuple[int, Cursor]:
        """Remove the ended groups whose JobGroups were deleted before that."""
        found = await self._reviews.released(after)
        for group_id, resource in found.ended.items():
            if await self._store.remove_released(group_id):
                logger.info(
                    "group %s of %s: removed, because it ended after its JobGroup was deleted",
                    group_id,
                    resource or "a deleted JobGroup",
                    extra={"group": group_id},
                )
        return 0, found

    async def _due(self) -> list[Part]:
        return [self._take_due]

    async def _take_due(self, after: Cursor) -> tuple[int, Cursor]:
        """Cancel running groups at their deadline, and remove groups whose TTL has passed."""
        found = await self._reviews.due(after)
        _log_removed(found.removed)
        for group_id in found.overdue:
            await self._settle([group_id], request=reasons.DEADLINE_EXCEEDED)
        return 0, found

    async def _old(self) -> list[Part]:
        """Remove groups without a resource and without a TTL of their own, if there is a TTL."""
        if self._group_ttl_seconds is None:
            return []
        return [partial(self._remove_old, state) for state in ("COMPLETED", "FAILED")]

    async def _remove_old(self, state: State, after: Cursor) -> tuple[int, Cursor]:
        age = (self._group_ttl_seconds or 0) * 1000
        found = await self._reviews.prune(state, age, after, spare=True)
        _log_removed(found.groups)
        return 0, found

    async def _review(
        self, state: State, queues: set[str], after: Cursor, short: int = SHORT
    ) -> tuple[int, Cursor]:
        """Settle the parked groups of a state that need it; collect the queues of their jobs."""
        found = await self._reviews.review(state, after, short)
        for group_id in found.discarded:
            logger.warning(
                "group %s: deleted its keys, because its owning queue was deleted", group_id
            )
        queues.update(found.queues)
        return await self._settle_all(found.due), found

    async def _settle_all(self, group_ids: list[str], queue: str = "") -> int:
        repaired = 0
        for batch in _batches(group_ids):
            repaired += await self._settle(batch, queue)
        return repaired


def _log_removed(group_ids: list[str]) -> None:
    if group_ids:
        logger.info("removed %d groups whose time to live had passed", len(group_ids))


def _batches(group_ids: list[str]) -> list[list[str]]:
    return [group_ids[n : n + BATCH] for n in range(0, len(group_ids), BATCH)]
