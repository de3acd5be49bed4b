"""What goes on in Redis -> which objects to look at: groups that changed, and groups on their way.

Stock workers wake a driver when a group fails or ends; whoever settles it tells its owner, and that
is us. Nobody is woken when one job of many completes: for that, running groups are looked at about
once a second, less often when there are very many.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from handlers.cluster import Ref
from handlers.failpoints import failpoint
from handlers.reconcile import Reconciler
from handlers.workqueue import WorkQueue
from jobgroup.connection import RedisError, backoff, leave_if_cancelled
from jobgroup.snapshot import GroupState
from jobgroup.store import Store

Counts = tuple[int, ...]

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
# So many groups are looked at in one go, and at most so many a second.
PAGE = 100
MOST_A_LOOK = 1000
# All running objects are looked at this often even if nothing happens: a net below the net.
RESYNC_SECONDS = 300
BLOCK_SECONDS = 2
# The counts of a group that was not made yet, or that Redis has lost.
NO_GROUP: Counts = ()


class Follower:
    """Watches one owner's groups in Redis."""

    def __init__(
        self, store: Store, owner: str, reconciler: Reconciler, queue: WorkQueue[Ref]
    ) -> None:
        self._store = store
        self._owner = owner
        self._reconciler = reconciler
        self._queue = queue
        self._counts: dict[str, Counts] = {}
        self._resync_at = time.monotonic() + RESYNC_SECONDS
        # Changed groups that Redis keeps in hand for us, until their objects were looked at.
        self._in_hand: dict[str, Ref | None] = {}
        # What another process had in hand, or an answer that was lost told of, is taken anew.
        self._take_again = True
        self._tidy_at = 0.0
        self.alive_at = time.monotonic()

    async def hear_changes(self) -> None:
        """Put each group into the queue that somebody settled."""
        await self._persist(self._take_changes)

    async def look_at_progress(self) -> None:
        """Put each group into the queue whose counts moved."""
        await self._persist(self._look)

    async def _persist(self, action: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            leave_if_cancelled()
            try:
                await action()
                if failures:
                    self._look_at_all()  # what was told meanwhile may be lost
                failures = 0
            except RedisError as error:
                failures += 1
                if failures == 1:
                    logger.warning("redis: %s", error)
                    self._look_at_all()  # whoever finds Redis away says so on the object
                await asyncio.sleep(backoff(failures))

    def _look_at_all(self) -> None:
        self._resync_at = time.monotonic() + RESYNC_SECONDS
        self._take_again = True
        self._reconciler.memory.doubt_all()
        for each in self._reconciler.memory.running.values():
            self._queue.add(each)

    async def _take_changes(self) -> None:
        self.alive_at = time.monotonic()
        again, self._take_again = self._take_again, False
        looked = self._looked_at()
        changed = await self._store.changed(self._owner, BLOCK_SECONDS, looked, again)
        for group_id in looked:
            del self._in_hand[group_id]
        for group_id in changed:
            ref = self._reconciler.memory.running.get(group_id) or await self._find(group_id)
            if ref:
                self._queue.add(ref)
            self._in_hand[group_id] = ref

    def _looked_at(self) -> list[str]:
        """Return, now and then, the groups in hand of whose change nothing is left to be told."""
        now = time.monotonic()
        if now < self._tidy_at:
            return []
        self._tidy_at = now + LOOK_SECONDS
        in_hand = self._in_hand.items()
        return [group_id for group_id, ref in in_hand if not ref or not self._queue.owes(ref)]

    async def _find(self, group_id: str) -> Ref | None:
        """Find the object of a group that had ended: a job of it was retried by hand."""
        failpoint("late")
        resource = await self._store.resource(group_id)
        if resource is None:
            return None
        namespace, _, name = resource.partition("/")
        return Ref(namespace, name, group_id)

    async def _look(self) -> None:
        running = self._reconciler.memory.running
        if time.monotonic() >= self._resync_at:
            self._look_at_all()
        for gone in self._counts.keys() - running.keys():
            del self._counts[gone]
        ids = list(running)
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            found = {group.id: _counts(group) for group in await self._store.read_many(page)}
            for group_id in page:
                before, counts = self._counts.get(group_id), found.get(group_id, NO_GROUP)
                if group_id in running and has_moved(before, counts):
                    self._queue.add(running[group_id])
                self._counts[group_id] = counts
            if (start + PAGE) % MOST_A_LOOK == 0:
                await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(LOOK_SECONDS)


def has_moved(before: Counts | None, counts: Counts) -> bool:
    """Say whether a group's object may tell other counts than these; `before` is the last look.

    The first is the group's revision, which moves when it is settled.

    When a group was made, its object told that nothing had happened yet. So a job that completed
    before the first look counts as well.
    """
    if counts and not before:
        return any(counts[1:])
    return counts != before


def _counts(group: GroupState) -> Counts:
    return (
        # Whoever settles a group tells us; this is heard even if that was lost on the way.
        group.revision,
        group.completed_count,
        group.failed_count,
        group.cancelled_count,
        group.undo_count,
        group.undone_count,
        group.undo_failed_count,
    )
