"""The follower enqueues objects of groups whose counts changed or that the stream names."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from operator import attrgetter

import pytest

from handlers.jobgroups import follower
from handlers.jobgroups.cache import ObjectCache
from handlers.jobgroups.follower import NO_GROUP, Counts, Follower, has_changed
from handlers.kube.refs import LARGE_JOBS, Ref
from handlers.kube.workqueue import WorkQueue
from jobgroup.definition.plan import plan_group
from jobgroup.definition.spec import parse_group
from jobgroup.model import names
from jobgroup.store.streams import START
from testbed.support.sagas import Sagas, job, stage
from testbed.support.waiting import eventually

OWNER = "cluster-1"
READER = "system/operator"
# The id of an entry about 3,000 years in the future.
AHEAD = "99999999999999-0"


@pytest.mark.parametrize(
    ("before", "counts", "moved"),
    [
        # The group is not created yet, or was lost before the first read: reconcile once.
        (None, NO_GROUP, True),
        (NO_GROUP, NO_GROUP, False),
        # The group is new: its status reports no ended job.
        (None, (1, 0, 0), False),
        (NO_GROUP, (1, 0, 0), False),
        (None, (1, 1, 0), True),
        (NO_GROUP, (1, 1, 0), True),
        # The group is running.
        ((1, 1, 0), (1, 1, 0), False),
        ((1, 1, 0), (1, 2, 0), True),
        # The group was settled, but the entry in the stream was lost.
        ((1, 3, 0), (2, 3, 0), True),
        # Redis has lost the group.
        ((1, 1, 0), NO_GROUP, True),
    ],
)
def test_has_changed(before: Counts | None, counts: Counts, moved: bool) -> None:
    assert has_changed(before, counts) is moved


class Replica:
    """A follower that runs inside the test; the test takes objects from its work queue."""

    def __init__(self, sagas: Sagas, reader: str, namespaces: tuple[str, ...]) -> None:
        self.queue: WorkQueue[Ref] = WorkQueue(attrgetter("namespace"), attrgetter("is_large"))
        self.cache = ObjectCache()
        self.follower = Follower(
            sagas.groups.store, OWNER, reader, namespaces, self.cache, self.queue
        )

    async def takes(self, name: str, large: bool = False) -> Ref:
        """Wait until an object of this size is enqueued, and check that it is this one."""
        async with asyncio.timeout(60):
            ref = await self.queue.get(large)
        assert ref == reference(name)
        return ref

    async def reconciles(self, name: str) -> None:
        """Wait until this object is enqueued, and mark it as reconciled."""
        self.queue.done(await self.takes(name))

    async def processes_all(self) -> None:
        """Wait until the follower has processed all entries that it read."""
        for _ in range(2):
            before = self.follower.alive_at
            await eventually(lambda: moved(before, lambda: self.follower.alive_at))  # noqa: B023

    @property
    def is_idle(self) -> bool:
        """Return whether the work queue is empty."""
        return len(self.queue) == 0


async def moved(before: float, now: Callable[[], float]) -> bool:
    return now() != before


def reference(name: str) -> Ref:
    return Ref("shop", name, name)


@pytest.fixture
async def sagas(redis_url: str, prefix: str) -> AsyncIterator[Sagas]:
    async with stage(redis_url, prefix) as sagas:
        yield sagas


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a follower save its checkpoint in each round, and shorten the rounds."""
    monkeypatch.setattr(follower, "INTERVAL_SECONDS", 0)
    monkeypatch.setattr(follower, "BLOCK_SECONDS", 0.01)


@asynccontextmanager
async def replica(
    sagas: Sagas, reader: str = READER, namespaces: tuple[str, ...] = ()
) -> AsyncIterator[Replica]:
    """Run a follower, and stop it as if its process were killed."""
    one = Replica(sagas, reader, namespaces)
    task = asyncio.create_task(one.follower.follow_changes())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.wait([task])


async def change(sagas: Sagas, *names: str, jobs: int = 1) -> str:
    """Create and cancel groups; return the id of the last entry in the stream."""
    for name in names:
        definition = parse_group("order", [job("charge")] * jobs)
        await sagas.groups.store.create([plan_group(definition, name, OWNER, f"shop/{name}")])
        await sagas.groups.cancel_group(name)
    return await sagas.groups.store.streams.newest_change(OWNER)


async def saves_checkpoint(sagas: Sagas, entry: str, reader: str = READER) -> None:
    """Wait until the checkpoint of a reader is this entry."""

    async def is_saved() -> bool:
        return await sagas.groups.store.streams.read_checkpoint(OWNER, reader) == entry

    await eventually(is_saved)


async def test_processed_entries_are_skipped_after_a_restart(sagas: Sagas) -> None:
    async with replica(sagas) as first:
        entry = await change(sagas, "a", "b")
        await first.reconciles("a")
        await first.reconciles("b")
        await saves_checkpoint(sagas, entry)
    await change(sagas, "c")
    async with replica(sagas) as heir:
        await heir.reconciles("c")
        await heir.processes_all()
        assert heir.is_idle


async def test_a_reader_without_a_checkpoint_reads_the_whole_stream(sagas: Sagas) -> None:
    await change(sagas, "a", "b")
    await sagas.groups.remove_group("a")
    async with replica(sagas) as first:
        await first.reconciles("b")
        await first.processes_all()
        assert first.is_idle


async def test_a_failing_object_holds_the_checkpoint_back(sagas: Sagas) -> None:
    async with replica(sagas) as first:
        entry = await change(sagas, "a")
        await first.reconciles("a")
        failing = await change(sagas, "b")
        ref = await first.takes("b")
        first.queue.add_rate_limited(ref, 3600)
        first.queue.done(ref)
        await change(sagas, "c")
        await first.reconciles("c")
        await saves_checkpoint(sagas, entry)
        await first.processes_all()
        await saves_checkpoint(sagas, entry)
    async with replica(sagas) as heir:
        ref = await heir.takes("b")
        await heir.reconciles("c")
        await heir.processes_all()
        await saves_checkpoint(sagas, entry)
        heir.queue.done(ref)
        newest = await sagas.groups.store.streams.newest_change(OWNER)
        assert newest != failing
        await saves_checkpoint(sagas, newest)


async def test_several_changes_before_a_reconcile_are_one(sagas: Sagas) -> None:
    async with replica(sagas) as first:
        await change(sagas, "a")
        ref = await first.takes("a")
        stream = names.owner_changes_key(sagas.prefix, OWNER)
        for _ in range(3):
            last = await sagas.redis.xadd(stream, {"group": "a"})
        await first.processes_all()
        first.queue.done(ref)
        await first.reconciles("a")
        await saves_checkpoint(sagas, str(last))
        assert first.is_idle


async def test_two_releases_read_all_entries_and_reconcile_their_own_objects(sagas: Sagas) -> None:
    async with (
        replica(sagas, "shop/operator", ("shop",)) as ours,
        replica(sagas, "bank/operator", ("bank",)) as theirs,
    ):
        entry = await change(sagas, "a")
        await saves_checkpoint(sagas, entry, "bank/operator")
        assert theirs.is_idle
        assert await sagas.groups.store.streams.read_checkpoint(OWNER, "shop/operator") == START
        await ours.reconciles("a")
        await saves_checkpoint(sagas, entry, "shop/operator")


async def test_the_name_of_a_running_object_comes_from_the_watch(
    sagas: Sagas,
) -> None:
    """The follower does not read it from Redis, which may have lost the group."""
    async with replica(sagas) as first:
        first.cache.track(reference("gone"))
        await sagas.redis.xadd(names.owner_changes_key(sagas.prefix, OWNER), {"group": "gone"})
        await first.reconciles("gone")


async def test_a_late_change_of_a_large_group_waits_for_a_worker_of_large_ones(
    sagas: Sagas,
) -> None:
    """A group that has ended is not in the cache, so its size is read from Redis."""
    async with replica(sagas) as first:
        await change(sagas, "large", jobs=LARGE_JOBS + 1)
        await change(sagas, "small", jobs=LARGE_JOBS)
        await first.takes("large", large=True)
        await first.takes("small")


async def test_a_reader_continues_after_a_flush(sagas: Sagas) -> None:
    """Entries after the flush may have smaller ids, if the clock of Redis was ahead before."""
    stream = names.owner_changes_key(sagas.prefix, OWNER)
    await sagas.redis.xadd(stream, {"group": "none"}, id=AHEAD)
    async with replica(sagas) as first:
        await saves_checkpoint(sagas, AHEAD)
        await sagas.redis.delete(stream, names.checkpoints_key(sagas.prefix, OWNER))
        newest = await change(sagas, "a")
        await first.reconciles("a")
        await saves_checkpoint(sagas, newest)


async def test_a_reader_continues_after_a_flush_while_it_was_stopped(sagas: Sagas) -> None:
    await sagas.groups.store.streams.save_checkpoint(OWNER, READER, AHEAD)
    async with replica(sagas) as first:
        newest = await change(sagas, "a")
        await first.reconciles("a")
        await saves_checkpoint(sagas, newest)
