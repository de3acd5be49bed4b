"""The driver settles groups. Any number of drivers can run, and each can be killed at any time.

A driver blocks until a stock worker puts a group on the wake-up list. Redis then settles the groups
on the list, without a further message from the driver. The same call removes their entries, so no
entry is lost with a driver. Beside that, a resync looks for groups that changed without a wake-up;
see resync.py. Of several drivers, one at a time does that.
"""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from jobgroup.errors import JobGroupError, NewerFormatError
from jobgroup.model import names
from jobgroup.model.clock import FAILOVER_SECONDS, GRACE, backoff
from jobgroup.model.snapshot import GroupState, Settled
from jobgroup.resync import OWN, Resync
from jobgroup.store.connection import RedisError, is_transient, lacks_right, leave_if_cancelled
from jobgroup.store.replies import SettleResult
from jobgroup.store.store import Store

logger = logging.getLogger(__name__)

# The most groups that one call settles; fewer if they are a few milliseconds of work for Redis.
BATCH = 200
# The longest wait for a wake-up. Less than the five seconds after which redis-py 8 ends a read.
WAIT_SECONDS = 2.0
# An error is reported again after this time: every resync meets that of a group, and every attempt
# that of a Redis which is away.
REPORT_SECONDS = 30.0
WAKEUPS = "wake-ups"
# A driver claims the reviews for this time, and all drivers ask this often.
CLAIM_SECONDS = 4.0
ASK_SECONDS = 1.0
# A driver whose user lacks a right for a review does not claim for this time. Its claim ends, and
# another driver can have it. If there is none, the driver reviews again after that.
YIELD_SECONDS = CLAIM_SECONDS + 2 * ASK_SECONDS


@dataclass(slots=True)
class Counters:
    """What a driver has done so far."""

    wakeups: int = 0
    settles: int = 0
    resyncs: int = 0
    repairs: int = 0
    errors: int = 0


class Driver:
    """The loops that settle the groups of one Redis."""

    def __init__(
        self,
        store: Store,
        on_settled: Callable[[GroupState], None] | None = None,
        on_error: Callable[[str, Exception], None] = lambda _, __: None,
        resync_seconds: float = 4,
        recheck_seconds: float = 1,
        grace: int = GRACE,
        name: str = "",
        group_ttl_seconds: int | None = None,
    ) -> None:
        """Drivers with the same name may review groups side by side; by default it is random.

        Groups without a resource and without a TTL of their own are removed `group_ttl_seconds`
        after their end, unless their compensation failed; by default, they are kept.
        """
        self.counters = Counters()
        # When each loop begins its next turn, or began the one that it is in.
        self._turn_at = {WAKEUPS: time.monotonic()}
        self._store = store
        self._on_settled = on_settled
        self._on_error = on_error
        # A callback receives snapshots, which cost Redis and the driver time.
        self._how = (grace, on_settled is not None)
        # Groups that were given up and have members that can still finish.
        self._waiting: set[str] = set()
        # When an error was last reported, by its group or its text.
        self._reported: dict[str, float] = {}
        # Whether the wake-up list may have entries of which no marker tells.
        self._must_drain = True
        # Entries of groups with a newer format, how often they were found, and when to look again.
        self._newer: set[str] = set()
        self._newer_scans = 0
        self._next_scan = -math.inf
        self._resync = Resync(
            store, self._settle, lambda: self._waiting, self._count_resync, group_ttl_seconds
        )
        self._periods = (resync_seconds, recheck_seconds)
        self._name = name or secrets.token_hex(8)
        self._reviews_until = -math.inf
        self._yields_until = -math.inf

    async def run(self) -> None:
        """Drive until cancelled; after an error of Redis, wait and continue."""
        with suppress(RedisError, JobGroupError):  # the loop asks again
            await self._claim_reviews()
        leave_if_cancelled()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(WAKEUPS, self._follow_wakeups))
            tasks.create_task(self._repeat("claim", self._claim_reviews))
            for name, each in self._resync.passes(*self._periods).items():
                turn = each.turn if name in OWN else partial(self._review, each.turn)
                tasks.create_task(self._repeat(name, turn))

    @property
    def alive_at(self) -> float:
        """Return when the loop that is most overdue began its turn, or should have begun one.

        A loop that rests is not overdue, and errors of Redis do not stop the turns. Each turn is
        short: it reads one page, or waits for a wake-up.
        """
        return min(self._turn_at.values())

    @property
    def is_reviewing(self) -> bool:
        """Return whether this driver reviews the groups; of all drivers of a prefix, one does."""
        return time.monotonic() < self._reviews_until

    async def _repeat(self, name: str, turn: Callable[[], Awaitable[float]]) -> None:
        """Take turns, each of which returns how many seconds to rest after it."""
        failures = 0
        while True:
            self._turn_at[name] = time.monotonic()
            try:
                rest = await turn()
                if failures:
                    self._reported.clear()
                failures = 0
            except (RedisError, JobGroupError) as error:
                failures += 1
                rest = backoff(failures, FAILOVER_SECONDS)
                # One loop reports for all that Redis is unavailable.
                if name == WAKEUPS or not is_transient(error):
                    self._report("", error)
            leave_if_cancelled()
            self._turn_at[name] = time.monotonic() + rest
            await asyncio.sleep(rest)

    async def _claim_reviews(self) -> float:
        await self._store.rights.check_once()
        asked_at = time.monotonic()
        if asked_at < self._yields_until:
            return ASK_SECONDS
        if await self._store.reviews.claim(self._name, round(CLAIM_SECONDS * 1000)):
            self._reviews_until = asked_at + CLAIM_SECONDS
        else:
            self._reviews_until = -math.inf
            self._resync.stand_by()
        return ASK_SECONDS

    async def _review(self, turn: Callable[[], Awaitable[float]]) -> float:
        """Take a turn if this driver reviews, and else rest."""
        if not self.is_reviewing:
            return min(ASK_SECONDS, self._periods[0])
        try:
            return await turn()
        except RedisError as error:
            if lacks_right(error):
                # The user of another driver may have the right.
                self._yields_until = time.monotonic() + YIELD_SECONDS
                self._reviews_until = -math.inf
                self._resync.stand_by()
            raise

    async def _follow_wakeups(self) -> float:
        await self._store.rights.check_once()
        if self._must_drain:
            await self.drain()
            leave_if_cancelled()
        self._must_drain = True  # a call that fails may have taken the marker
        entries = await self._store.wakeups.wait_and_settle(WAIT_SECONDS, BATCH, *self._how)
        newer = await self._take(entries)
        # A call that leaves entries which it did not read adds a marker.
        self._must_drain = bool(newer) or not entries
        return 0

    async def drain(self) -> None:
        """Settle until the wake-up list is empty, except for groups with a newer format.

        These are left to a driver of the newer release, which is woken once for each. If there are
        many of them, the whole list is read more and more seldom.
        """
        newer: list[str] = []
        is_scan = time.monotonic() >= self._next_scan
        while entries := await self._store.wakeups.settle(len(newer), BATCH, *self._how):
            found = await self._take(entries)
            newer += found
            if len(found) == BATCH and not is_scan:
                break
        if not self._newer.issuperset(newer):
            await self._store.wakeups.pass_on()
        if is_scan:
            self._newer = set(newer)
            self._newer_scans = self._newer_scans + 1 if newer else 0
            if newer:
                self._next_scan = time.monotonic() + backoff(self._newer_scans)
        else:
            self._newer.update(newer)

    async def _take(self, entries: list[tuple[str, SettleResult]]) -> list[str]:
        """Take note of entries that were settled; return those with a newer format."""
        self._turn_at[WAKEUPS] = time.monotonic()  # a long list takes many calls
        self.counters.wakeups += len(entries)
        self.counters.settles += len(entries)
        newer = []
        for entry, result in entries:
            if isinstance(result, NewerFormatError):
                newer.append(entry)
            elif not self._accept(names.group_of_wakeup(entry), result):
                await self._store.wakeups.set_aside(entry)
        return newer

    async def resync(self) -> int:
        """Review every group now; return how many moved on without a wake-up."""
        return await self._resync.review_everything()

    def _count_resync(self, repaired: int) -> None:
        self.counters.resyncs += 1
        self.counters.repairs += repaired
        if repaired:
            logger.warning(
                "the resync advanced %d groups that had no wake-up; a job may have been removed"
                " manually",
                repaired,
            )

    async def _settle(self, group_ids: list[str], queue: str = "", request: str = "") -> int:
        """Settle groups one after the other; return how many were repaired.

        Redis runs a pipeline without a break. A call for each group lets it serve others between
        two large groups.
        """
        repaired = 0
        for group_id in group_ids:
            self.counters.settles += 1
            grace, snapshots = self._how
            (result,) = await self._store.settle([group_id], request, grace, queue, snapshots)
            was_waiting = group_id in self._waiting
            self._accept(group_id, result)
            repaired += isinstance(result, Settled) and result.repaired and not was_waiting
        return repaired

    def _accept(self, group_id: str, result: SettleResult) -> bool:
        """Take note of a result; return False if the group cannot be settled."""
        self._waiting.discard(group_id)
        if isinstance(result, Settled):
            self._reported.pop(group_id, None)
            if result.open and result.state != "ACTIVE":
                self._waiting.add(group_id)
            self._resync.follow(result.failed_queues, result.settled_at)
            if result.changed and result.group and self._on_settled:
                self._on_settled(result.group)
        elif isinstance(result, Exception) and not isinstance(result, NewerFormatError):
            if is_transient(result) or lacks_right(result):
                raise result
            self._report(group_id, result)
            return False
        return True

    def _report(self, group_id: str, error: Exception) -> None:
        now, subject = time.monotonic(), group_id or str(error)
        if now < self._reported.get(subject, -math.inf) + REPORT_SECONDS:
            return
        self._reported[subject] = now
        self.counters.errors += 1
        about = f"group {group_id}" if group_id else "redis"
        level = logging.WARNING if is_transient(error) else logging.ERROR
        context = {"group": group_id} if group_id else {}
        logger.log(level, "%s: %s", about, error, extra=context)
        self._on_error(group_id, error)
