"""What goes on in Redis -> which objects to look at: groups that changed, and groups on their way.

Stock workers wake a driver when a group fails or ends; whoever settles it tells its owner, and that
is us. Nobody is woken when one job of many completes: for that, running groups are looked at about
once a second, less often when there are very many.

The owner is the cluster, and what it is told stands in a stream. Where several operators share its
namespaces between them, each reads all of it, from its own place, and looks at what is its own.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from handlers.bookmark import Bookmark, is_older
from handlers.cluster import Ref
from handlers.failpoints import failpoint
from handlers.memory import Memory
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
        self,
        store: Store,
        owner: str,
        reader: str,
        namespaces: Collection[str],
        memory: Memory,
        queue: WorkQueue[Ref],
    ) -> None:
        """Begin where whoever had the same name as a reader has got to.

        `namespaces` are those that are watched; none means all of them.
        """
        self._store = store
        self._owner = owner
        self._reader = reader
        self._namespaces = namespaces
        self._memory = memory
        self._queue = queue
        self._bookmark: Bookmark[Ref] | None = None
        # What Redis has as our place, and when to look whether that has moved.
        self._kept = ""
        self._keep_at = 0.0
        self._counts: dict[str, Counts] = {}
        self._resync_at = time.monotonic() + RESYNC_SECONDS
        self.alive_at = time.monotonic()

    async def hear_changes(self) -> None:
        """Put each group into the queue that somebody settled."""
        await self._persist(self._hear)

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
                    self._look_at_all()  # it may be another Redis, or an older one
                failures = 0
            except RedisError as error:
                failures += 1
                if failures == 1:
                    logger.warning("redis: %s", error)
                    self._look_at_all()  # whoever finds Redis away says so on the object
                await asyncio.sleep(backoff(failures))

    def _look_at_all(self) -> None:
        self._resync_at = time.monotonic() + RESYNC_SECONDS
        self._memory.doubt_all()
        for each in self._memory.running.values():
            self._queue.add(each)

    async def _hear(self) -> None:
        self.alive_at = time.monotonic()
        if self._bookmark is None:
            self._kept = await self._store.streams.place(self._owner, self._reader)
            self._bookmark = Bookmark(self._kept)
        bookmark = self._bookmark
        changes = await self._store.streams.changes(self._owner, bookmark.read_to, BLOCK_SECONDS)
        objects = await self._find([group_id for _, group_id in changes])
        for entry, group_id in changes:
            ref = objects.get(group_id)
            if ref:
                self._queue.add(ref)
            bookmark.read(entry, ref)
        if not changes and is_older(
            await self._store.streams.newest_change(self._owner), bookmark.read_to
        ):
            # Redis lost what we read, and by its clock all that it tells us now may be old.
            self._bookmark = Bookmark()
        await self._keep_place(self._bookmark)

    async def _keep_place(self, bookmark: Bookmark[Ref]) -> None:
        """Note now and then in Redis how far all that was told has been looked at."""
        now = time.monotonic()
        if now < self._keep_at:
            return
        self._keep_at = now + LOOK_SECONDS
        place = bookmark.begin_after(self._queue.owes)
        if place != self._kept:
            await self._store.streams.keep_place(self._owner, self._reader, place)
            self._kept = place

    async def _find(self, group_ids: Sequence[str]) -> dict[str, Ref]:
        """Find the objects of groups: those under way, and those of groups that had ended.

        A job of the latter was retried by hand, or we began where another had not got to. The
        objects of another operator are not for us to look at, and we may have no right to.
        """
        running = self._memory.running
        found = {group_id: running[group_id] for group_id in group_ids if group_id in running}
        others = list(dict.fromkeys(each for each in group_ids if each not in found))
        if not others:
            return found
        failpoint("late")
        for group_id, resource in (await self._store.resources(self._owner, others)).items():
            namespace, _, name = resource.partition("/")
            if not self._namespaces or namespace in self._namespaces:
                found[group_id] = Ref(namespace, name, group_id)
        return found

    async def _look(self) -> None:
        running = self._memory.running
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
