"""Finds queues in which jobs of running groups wait although no worker is connected.

A mistyped queue name, or workers that were never started, causes no event. So a loop looks at the
queues of all objects in progress, and adds the objects of a queue to the work queue when it lost
or got its workers. The reconcile then reports it.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from handlers.jobgroups.cache import ObjectCache
from handlers.kube.refs import Ref
from handlers.kube.workqueue import WorkQueue
from jobgroup.resource import reasons
from jobgroup.resource.listeners import queues_without_worker
from jobgroup.resource.status import ready_reason
from jobgroup.store.connection import RedisError, leave_if_cancelled
from jobgroup.store.store import Store

# How often to look for workers. Redis lists all its connections, so that is done only if jobs wait
# in a queue in which nothing seems to work.
CHECK_SECONDS = 10.0
# Queues per read.
PAGE = 100
# How long a queue may have no worker before that is reported: workers may still be starting.
PATIENCE_SECONDS = 60.0


class QueueWatch:
    """The queues of the objects in progress, and which of them lack a worker."""

    def __init__(self, store: Store, cache: ObjectCache) -> None:
        self._store = store
        self._cache = cache
        # The queues of each object in progress, by uid.
        self._used: dict[str, tuple[str, ...]] = {}
        # The newest event of each queue at the last check.
        self._events: dict[str, str] = {}
        # Since when a queue has no worker.
        self._since: dict[str, float] = {}
        # The objects that no check has covered yet.
        self._new: set[str] = set()
        self._unserved: frozenset[str] = frozenset()

    def unserved_for(self, uid: str) -> Collection[str]:
        """Return the queues in which jobs wait and that had no worker for PATIENCE_SECONDS.

        It is empty for a new object: a worker may have come since the last check.
        """
        return self._unserved if self.is_checked(uid) else frozenset()

    def track(self, ref: Ref, body: Mapping[str, Any]) -> None:
        """Add the queues of an object in progress; it is dropped when the cache drops it."""
        if ref.uid in self._used:
            return
        jobs = (body.get("spec") or {}).get("jobs") or ()
        self._new.add(ref.uid)
        self._used[ref.uid] = used = tuple({sys.intern(str(job["queueName"])) for job in jobs})
        if ready_reason(body.get("status") or {}) == reasons.NO_WORKER:
            # An earlier process waited for a worker already.
            for queue in used:
                self._since.setdefault(queue, float("-inf"))

    def is_checked(self, uid: str) -> bool:
        """Return whether a check has covered the queues of an object."""
        return uid not in self._new

    async def run(self, work: WorkQueue[Ref]) -> None:
        """Add the objects of a queue whose workers come or go to the work queue, forever."""
        while True:
            leave_if_cancelled()
            with contextlib.suppress(RedisError):  # the reconciler reports it
                for ref in await self.check(time.monotonic()):
                    work.add(ref)
            await asyncio.sleep(CHECK_SECONDS)

    async def check(self, now: float) -> list[Ref]:
        """Look for workers; return the objects to reconcile because a queue lost or got them.

        New objects of a queue without workers are among them.
        """
        running, new = self._cache.running, set(self._new)
        self._used = {uid: used for uid, used in self._used.items() if uid in running}
        queues = {queue for used in self._used.values() for queue in used}
        unserved = await self._find_unserved(queues, now) if queues else frozenset()
        changed = unserved ^ self._unserved
        self._unserved = unserved
        self._new -= new
        return [
            running[uid]
            for uid, used in self._used.items()
            if uid in running and not (unserved if uid in new else changed).isdisjoint(used)
        ]

    async def _find_unserved(self, queues: Collection[str], now: float) -> frozenset[str]:
        idle = await self._find_idle(sorted(queues))
        names = await self._store.queues.connections() if idle else None
        without = queues_without_worker(self._store.prefix, idle, names)
        self._since = {queue: self._since.get(queue, now) for queue in without}
        return frozenset(
            queue for queue, since in self._since.items() if since + PATIENCE_SECONDS <= now
        )

    async def _find_idle(self, queues: Sequence[str]) -> list[str]:
        """Return the queues in which jobs wait and none seems to be worked on.

        Active jobs may be those of dead workers; then the queue has no new event.
        """
        idle, events = [], {}
        for start in range(0, len(queues), PAGE):
            page = queues[start : start + PAGE]
            backlogs = await self._store.queues.backlogs([(queue, 0) for queue in page])
            for queue, backlog in zip(page, backlogs, strict=True):
                if isinstance(backlog, str) or backlog.demand <= backlog.active:
                    continue
                events[queue] = backlog.event
                is_still = self._events.get(queue) == backlog.event
                if not backlog.active or is_still or queue in self._since:
                    idle.append(queue)
        self._events = events
        return idle
