"""The driver: what moves sagas on. Run as many as you like, kill any of them anywhere.

It blocks until a stock worker puts a group on the wake-up list, settles what stands there and
blocks again. An entry leaves the list in the very call that settles its group, so nothing is lost
with a driver. Two things wake nobody: a member of a compensating group that goes back to wait, and
a member removed by hand. The first is looked for every second while it can happen, the second by a
resync.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from jobgroup import keys
from jobgroup.connection import RedisError, backoff, is_transient, leave_if_cancelled
from jobgroup.snapshot import Settled
from jobgroup.store import GRACE, Store

logger = logging.getLogger(__name__)

BATCH = 100
# Every so many resyncs also look at groups that have failed.
ENDED_EVERY = 20


@dataclass(slots=True)
class Counters:
    """What a driver did so far."""

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
        # When it last came round; Redis being away does not keep it from that.
        self.alive_at = time.monotonic()
        self._store = store
        self._on_settled = on_settled
        self._on_error = on_error
        self._resync_seconds = resync_seconds
        self._recheck_seconds = recheck_seconds
        self._grace = grace
        self._compensating: set[str] = set()

    async def run(self) -> None:
        """Drive until cancelled; whatever Redis does, wait and go on."""
        failures = 0
        resync_at = recheck_at = 0.0
        while True:
            leave_if_cancelled()
            self.alive_at = time.monotonic()
            try:
                await self.drain()
                if time.monotonic() >= resync_at:
                    await self.resync(ended=self.counters.resyncs % ENDED_EVERY == 0)
                    resync_at = time.monotonic() + self._resync_seconds
                if self._compensating and time.monotonic() >= recheck_at:
                    await self._settle([(group_id, "") for group_id in self._compensating])
                    recheck_at = time.monotonic() + self._recheck_seconds
                leave_if_cancelled()
                await self._store.wait_for_wakeup(
                    self._recheck_seconds if self._compensating else min(2, self._resync_seconds)
                )
                # Not before: it writes, and a Redis that is only to be read refuses that alone.
                failures = 0
            except RedisError as error:
                failures += 1
                # What a connection lost may be found on another: look at everything again.
                resync_at = 0.0
                self._report("", error, waits=is_transient(error))
                await asyncio.sleep(backoff(failures))

    async def drain(self) -> None:
        """Settle until the wake-up list is empty."""
        while tokens := await self._store.wakeups(BATCH):
            self.counters.wakeups += len(tokens)
            await self._settle([(keys.group_of(token), token) for token in tokens])

    async def resync(self, ended: bool = False) -> int:
        """Look at every unfinished group and return how many nobody would have woken.

        A group that failed is worth a look, too: 5.x wakes nobody when it retries in bulk.
        """
        tokens = await self._store.parked(ended)
        groups = list(dict.fromkeys(keys.group_of(token) for token in tokens))
        repaired = 0
        for start in range(0, len(groups), BATCH):
            page = groups[start : start + BATCH]
            settled = await self._settle([(group_id, "") for group_id in page])
            repaired += sum(one.repaired for one in settled)
        self.counters.resyncs += 1
        self.counters.repairs += repaired
        if repaired:
            logger.warning("resync repaired %d groups", repaired)
        return repaired

    async def _settle(self, tokens: list[tuple[str, str]]) -> list[Settled]:
        """Settle these groups in one round trip; one that cannot be settled holds up no other."""
        self.counters.calls += len(tokens)
        self.alive_at = time.monotonic()
        answers = await self._store.settle(tokens, grace=self._grace)
        settled = []
        for (group_id, token), answer in zip(tokens, answers, strict=True):
            if isinstance(answer, Settled):
                settled.append(answer)
                self._watch(answer)
            else:
                self._compensating.discard(group_id)
            if isinstance(answer, Exception):
                if is_transient(answer):
                    raise answer
                self._report(group_id, answer, waits=False)
                if token:
                    await self._store.set_aside(token)
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
