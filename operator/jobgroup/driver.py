"""The driver settles groups. Any number of drivers can run, and each can be killed at any time.

A driver blocks until a stock worker puts a group on the wake-up list, settles the groups on the
list and blocks again. The call that settles a group also removes its entry, so no entry is lost
with a driver. Two changes cause no wake-up: a member of a compensating group that waits for a
retry, and a member that was removed manually. The driver checks for the first every second while it
can happen, and for the second with a resync.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from jobgroup.model import names
from jobgroup.model.clock import backoff
from jobgroup.model.snapshot import Settled
from jobgroup.store.connection import RedisError, is_transient, leave_if_cancelled
from jobgroup.store.store import GRACE, Store

logger = logging.getLogger(__name__)

BATCH = 100
# Every 20th resync also settles the groups that have failed.
FAILED_EVERY = 20


@dataclass(slots=True)
class Counters:
    """What a driver has done so far."""

    wakeups: int = 0
    calls: int = 0
    resyncs: int = 0
    repairs: int = 0
    errors: int = 0


class Driver:
    """One loop over the wake-up list of one Redis."""

    def __init__(
        self,
        store: Store,
        on_settled: Callable[[Settled], None] = lambda _: None,
        on_error: Callable[[str, Exception], None] = lambda _, __: None,
        resync_seconds: float = 30,
        recheck_seconds: float = 1,
        grace: int = GRACE,
    ) -> None:
        self.counters = Counters()
        # The time of the last iteration; errors of Redis do not stop the iterations.
        self.alive_at = time.monotonic()
        self._store = store
        self._on_settled = on_settled
        self._on_error = on_error
        self._resync_seconds = resync_seconds
        self._recheck_seconds = recheck_seconds
        self._grace = grace
        self._compensating: set[str] = set()

    async def run(self) -> None:
        """Drive until cancelled; after an error of Redis, wait and continue."""
        failures = 0
        resync_at = recheck_at = 0.0
        while True:
            leave_if_cancelled()
            self.alive_at = time.monotonic()
            try:
                await self.drain()
                if time.monotonic() >= resync_at:
                    await self.resync(failed=self.counters.resyncs % FAILED_EVERY == 0)
                    resync_at = time.monotonic() + self._resync_seconds
                if self._compensating and time.monotonic() >= recheck_at:
                    await self._settle([(group_id, "") for group_id in self._compensating])
                    recheck_at = time.monotonic() + self._recheck_seconds
                leave_if_cancelled()
                await self._store.wakeups.wait(
                    self._recheck_seconds if self._compensating else min(2, self._resync_seconds)
                )
                # Reset only here: `wait` writes, and a read-only Redis accepts the reads before it.
                failures = 0
            except RedisError as error:
                failures += 1
                # After a failover the new primary may lack entries of the list: resync.
                resync_at = 0.0
                self._report("", error, waits=is_transient(error))
                await asyncio.sleep(backoff(failures))

    async def drain(self) -> None:
        """Settle until the wake-up list is empty."""
        while tokens := await self._store.wakeups.first(BATCH):
            self.counters.wakeups += len(tokens)
            await self._settle([(names.group_of_wakeup(token), token) for token in tokens])

    async def resync(self, failed: bool = False) -> int:
        """Settle every group that has not ended; return how many moved on without a wake-up.

        With `failed`, also settle failed groups: a bulk retry of BullMQ 5 causes no wake-up.
        """
        tokens = await self._store.wakeups.parked(failed)
        groups = list(dict.fromkeys(names.group_of_wakeup(token) for token in tokens))
        repaired = 0
        for start in range(0, len(groups), BATCH):
            page = groups[start : start + BATCH]
            settled = await self._settle([(group_id, "") for group_id in page])
            repaired += sum(one.repaired for one in settled)
        self.counters.resyncs += 1
        self.counters.repairs += repaired
        if repaired:
            logger.warning(
                "the resync advanced %d groups that had no wake-up; a job may have been removed"
                " manually",
                repaired,
            )
        return repaired

    async def _settle(self, tokens: list[tuple[str, str]]) -> list[Settled]:
        """Settle groups in one round trip; report a group that cannot be settled and go on."""
        self.counters.calls += len(tokens)
        self.alive_at = time.monotonic()
        results = await self._store.settle(tokens, grace=self._grace)
        settled = []
        for (group_id, token), result in zip(tokens, results, strict=True):
            if isinstance(result, Settled):
                settled.append(result)
                self._watch(result)
            else:
                self._compensating.discard(group_id)
            if isinstance(result, Exception):
                if is_transient(result):
                    raise result
                self._report(group_id, result, waits=False)
                if token:
                    await self._store.wakeups.set_aside(token)
        return settled

    def _watch(self, settled: Settled) -> None:
        if settled.group.state == "COMPENSATING" and settled.open:
            self._compensating.add(settled.group.id)
        else:
            self._compensating.discard(settled.group.id)
        if settled.changed:
            self._on_settled(settled)

    def _report(self, group_id: str, error: Exception, waits: bool) -> None:
        self.counters.errors += 1
        about = f"group {group_id}" if group_id else "redis"
        level = logging.WARNING if waits else logging.ERROR
        context = {"group": group_id} if group_id else {}
        logger.log(level, "%s: %s", about, error, extra=context)
        self._on_error(group_id, error)
