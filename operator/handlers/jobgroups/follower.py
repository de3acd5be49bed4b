"""Changes in Redis -> objects to reconcile: groups that were settled, and groups with progress.

Stock workers wake a driver when a group fails or ends, and the driver that settles it adds an entry
to the stream of the group's owner. Nothing reports that one job of many completed: for that, the
counts of running groups are read about once a second, less often when there are very many.

The owner is the cluster. If several operators share the namespaces of a cluster, each reads the
whole stream from its own checkpoint and reconciles the objects of its namespaces.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from handlers.failpoints import failpoint
from handlers.jobgroups.cache import ObjectCache
from handlers.jobgroups.checkpoint import Checkpoint, is_older
from handlers.kube.refs import LARGE_JOBS, Ref
from handlers.kube.workqueue import WorkQueue
from jobgroup.model.clock import FAILOVER_SECONDS, backoff
from jobgroup.model.snapshot import GroupState
from jobgroup.store.connection import RedisError, leave_if_cancelled
from jobgroup.store.store import Store

Counts = tuple[int, ...]

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
# Groups per read, and groups per interval.
PAGE = 100
MAX_PER_INTERVAL = 1000
# All running objects are reconciled this often, in case a change was missed.
RESYNC_SECONDS = 300
BLOCK_SECONDS = 2
# The counts of a group that does not exist yet, or that Redis has lost.
NO_GROUP: Counts = ()


class Follower:
    """Follows the groups of one owner in Redis."""

    def __init__(
        self,
        store: Store,
        owner: str,
        reader: str,
        namespaces: Collection[str],
        cache: ObjectCache,
        queue: WorkQueue[Ref],
    ) -> None:
        """Start at the checkpoint of `reader`; an empty `namespaces` means all of them."""
        self._store = store
        self._owner = owner
        self._reader = reader
        self._namespaces = namespaces
        self._cache = cache
        self._queue = queue
        self._checkpoint: Checkpoint[Ref] | None = None
        # The checkpoint in Redis, and when to compare it with ours.
        self._saved = ""
        self._save_at = 0.0
        self._counts: dict[str, Counts] = {}
        self._resync_at = time.monotonic() + RESYNC_SECONDS
        self.alive_at = time.monotonic()

    async def follow_changes(self) -> None:
        """Enqueue the object of each group that was settled, forever."""
        await self._repeat(self._read_changes)

    async def follow_progress(self) -> None:
        """Enqueue the object of each group whose counts changed, forever."""
        await self._repeat(self._read_progress)

    async def _repeat(self, action: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            leave_if_cancelled()
            try:
                await action()
                if failures:
                    self._enqueue_all()  # it may be another Redis, or an older state of it
                failures = 0
            except RedisError as error:
                failures += 1
                if failures == 1:
                    logger.warning("cannot follow groups in Redis: %s", error)
                    self._enqueue_all()  # so that each object reports the problem
                await asyncio.sleep(backoff(failures, FAILOVER_SECONDS))

    def _enqueue_all(self) -> None:
        self._resync_at = time.monotonic() + RESYNC_SECONDS
        self._cache.invalidate_all()
        for each in self._cache.running.values():
            self._queue.add(each)

    async def _read_changes(self) -> None:
        self.alive_at = time.monotonic()
        streams = self._store.streams
        if self._checkpoint is None:
            self._saved = await streams.read_checkpoint(self._owner, self._reader)
            self._checkpoint = Checkpoint(self._saved)
        checkpoint = self._checkpoint
        changes = await streams.changes(self._owner, checkpoint.read_to, BLOCK_SECONDS)
        objects = await self._find([group_id for _, group_id in changes])
        for entry, group_id in changes:
            ref = objects.get(group_id)
            if ref:
                self._queue.add(ref)
            checkpoint.read(entry, ref)
        if not changes and is_older(await streams.newest_change(self._owner), checkpoint.read_to):
            # Redis lost the entries that were read; new ones may have older ids.
            self._checkpoint = Checkpoint()
        await self._save_checkpoint(self._checkpoint)

    async def _save_checkpoint(self, checkpoint: Checkpoint[Ref]) -> None:
        """Save the checkpoint in Redis, at most once per interval."""
        now = time.monotonic()
        if now < self._save_at:
            return
        self._save_at = now + INTERVAL_SECONDS
        entry = checkpoint.start_after(self._queue.is_dirty)
        if entry != self._saved:
            await self._store.streams.save_checkpoint(self._owner, self._reader, entry)
            self._saved = entry

    async def _find(self, group_ids: Sequence[str]) -> dict[str, Ref]:
        """Return the objects of groups by group id: objects in progress, and those that had ended.

        An ended group changes if a job of it is retried manually, and its entry is read if this
        process started before it. Objects of other operators are left out: this one may have no
        permission to read them.
        """
        running = self._cache.running
        found = {group_id: running[group_id] for group_id in group_ids if group_id in running}
        others = list(dict.fromkeys(each for each in group_ids if each not in found))
        if not others:
            return found
        failpoint("late")
        for group_id, group in (await self._store.owned(self._owner, others)).items():
            namespace, _, name = group.resource.partition("/")
            if not self._namespaces or namespace in self._namespaces:
                is_large = group.jobs > LARGE_JOBS
                found[group_id] = Ref(namespace, name, group_id, is_large=is_large)
        return found

    async def _read_progress(self) -> None:
        running = self._cache.running
        if time.monotonic() >= self._resync_at:
            self._enqueue_all()
        for gone in self._counts.keys() - running.keys():
            del self._counts[gone]
        ids = list(running)
        for start in range(0, len(ids), PAGE):
            await self._read_page(ids[start : start + PAGE])
            if (start + PAGE) % MAX_PER_INTERVAL == 0:
                await asyncio.sleep(INTERVAL_SECONDS)
        await asyncio.sleep(INTERVAL_SECONDS)

    async def _read_page(self, ids: Sequence[str]) -> None:
        running = self._cache.running
        found = {group.id: _counts(group) for group in await self._store.read_many(ids)}
        for group_id in ids:
            before, counts = self._counts.get(group_id), found.get(group_id, NO_GROUP)
            if group_id in running and has_changed(before, counts):
                self._queue.add(running[group_id])
            self._counts[group_id] = counts


def has_changed(before: Counts | None, counts: Counts) -> bool:
    """Return whether the status of a group's object may have other counts than these.

    `before` are the counts of the last read. The first count is the group's revision, which changes
    when the group is settled. The status of a new group reports no ended job, so a job that
    completed before the first read counts as a change.
    """
    if counts and not before:
        return any(counts[1:])
    return counts != before


def _counts(group: GroupState) -> Counts:
    return (
        # So a settled group is found even if its entry in the stream was lost.
        group.revision,
        group.completed_count,
        group.failed_count,
        group.cancelled_count,
        group.undo_count,
        group.undone_count,
        group.undo_failed_count,
    )
