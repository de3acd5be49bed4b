"""Which objects are worth a look: those of groups whose counts moved, and of whom Redis tells."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from handlers import follow
from handlers.cluster import Ref
from handlers.follow import NO_GROUP, Counts, Follower, has_moved
from handlers.memory import Memory
from handlers.workqueue import WorkQueue
from jobgroup import keys
from jobgroup.plan import plan_group
from jobgroup.spec import parse_group
from jobgroup.streams import START
from testbed.sagas import Sagas, job, stage
from testbed.waiting import eventually

OWNER = "cluster-1"
READER = "system/operator"
# An entry that a clock makes in three thousand years.
AHEAD = "99999999999999-0"


@pytest.mark.parametrize(
    ("before", "counts", "moved"),
    [
        # Not made yet, or lost before the first look: one look tells which.
        (None, NO_GROUP, True),
        (NO_GROUP, NO_GROUP, False),
        # New: the object tells of no job that ended.
        (None, (1, 0, 0), False),
        (NO_GROUP, (1, 0, 0), False),
        (None, (1, 1, 0), True),
        (NO_GROUP, (1, 1, 0), True),
        # Under way.
        ((1, 1, 0), (1, 1, 0), False),
        ((1, 1, 0), (1, 2, 0), True),
        # Settled, and the word of it was lost.
        ((1, 3, 0), (2, 3, 0), True),
        # Lost.
        ((1, 1, 0), NO_GROUP, True),
    ],
)
def test_counts_that_moved(before: Counts | None, counts: Counts, moved: bool) -> None:
    assert has_moved(before, counts) is moved


class Replica:
    """A follower without its process, whose objects a test looks at."""

    def __init__(self, sagas: Sagas, reader: str, namespaces: tuple[str, ...]) -> None:
        self.queue = WorkQueue[Ref]()
        self.memory = Memory()
        self.follower = Follower(
            sagas.groups.store, OWNER, reader, namespaces, self.memory, self.queue
        )

    async def hears(self, name: str) -> Ref:
        """Wait until an object is to be looked at, and see that it is this one."""
        async with asyncio.timeout(60):
            ref = await self.queue.take()
        assert ref == reference(name)
        return ref

    async def looks_at(self, name: str) -> None:
        """Wait until an object is to be looked at, and look."""
        self.queue.done(await self.hears(name))

    async def comes_round(self) -> None:
        """Wait until all that was read before has been dealt with."""
        for _ in range(2):
            before = self.follower.alive_at
            await eventually(lambda: moved(before, lambda: self.follower.alive_at))  # noqa: B023

    @property
    def is_idle(self) -> bool:
        """Say whether there is nothing to look at."""
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
    """Let a follower keep its place whenever it comes round, and come round often."""
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0)
    monkeypatch.setattr(follow, "BLOCK_SECONDS", 0.01)


@asynccontextmanager
async def replica(
    sagas: Sagas, reader: str = READER, namespaces: tuple[str, ...] = ()
) -> AsyncIterator[Replica]:
    """Run a follower; at the end it is gone without a word, as with its process."""
    one = Replica(sagas, reader, namespaces)
    task = asyncio.create_task(one.follower.hear_changes())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.wait([task])


async def change(sagas: Sagas, *names: str) -> str:
    """Have groups end, one after the other, and return the entry that tells of the last one."""
    for name in names:
        definition = parse_group("order", [job("charge")])
        await sagas.groups.store.create([plan_group(definition, name, OWNER, f"shop/{name}")])
        await sagas.groups.cancel_group(name)
    return await sagas.groups.store.streams.newest_change(OWNER)


async def keeps(sagas: Sagas, place: str, reader: str = READER) -> None:
    """Wait until a reader's place is this one."""

    async def is_kept() -> bool:
        return await sagas.groups.store.streams.place(OWNER, reader) == place

    await eventually(is_kept)


async def test_old_entries_are_not_looked_at_again_after_a_restart(sagas: Sagas) -> None:
    async with replica(sagas) as first:
        place = await change(sagas, "a", "b")
        await first.looks_at("a")
        await first.looks_at("b")
        await keeps(sagas, place)
    await change(sagas, "c")
    async with replica(sagas) as heir:
        await heir.looks_at("c")
        await heir.comes_round()
        assert heir.is_idle


async def test_who_has_no_place_yet_hears_of_all_that_the_stream_holds(sagas: Sagas) -> None:
    await change(sagas, "a", "b")
    await sagas.groups.remove_group("a")
    async with replica(sagas) as first:
        await first.looks_at("b")
        await first.comes_round()
        assert first.is_idle


async def test_an_object_that_fails_keeps_the_place_back(sagas: Sagas) -> None:
    async with replica(sagas) as first:
        place = await change(sagas, "a")
        await first.looks_at("a")
        failing = await change(sagas, "b")
        first.queue.retry(await first.hears("b"), 3600)
        await change(sagas, "c")
        await first.looks_at("c")
        await keeps(sagas, place)
        await first.comes_round()
        await keeps(sagas, place)
    async with replica(sagas) as heir:
        ref = await heir.hears("b")
        await heir.looks_at("c")
        await heir.comes_round()
        await keeps(sagas, place)
        heir.queue.done(ref)
        newest = await sagas.groups.store.streams.newest_change(OWNER)
        assert newest != failing
        await keeps(sagas, newest)


async def test_several_changes_before_a_look_are_one(sagas: Sagas) -> None:
    async with replica(sagas) as first:
        await change(sagas, "a")
        ref = await first.hears("a")
        stream = keys.changed(sagas.prefix, OWNER)
        for _ in range(3):
            last = await sagas.redis.xadd(stream, {"group": "a"})
        await first.comes_round()
        first.queue.done(ref)
        await first.looks_at("a")
        await keeps(sagas, str(last))
        assert first.is_idle


async def test_two_releases_hear_everything_and_look_at_their_own(sagas: Sagas) -> None:
    async with (
        replica(sagas, "shop/operator", ("shop",)) as ours,
        replica(sagas, "bank/operator", ("bank",)) as theirs,
    ):
        place = await change(sagas, "a")
        await keeps(sagas, place, "bank/operator")
        assert theirs.is_idle
        assert await sagas.groups.store.streams.place(OWNER, "shop/operator") == START
        await ours.looks_at("a")
        await keeps(sagas, place, "shop/operator")


async def test_an_object_under_way_is_looked_at_under_the_name_the_watch_told(
    sagas: Sagas,
) -> None:
    """Nothing is asked of Redis then: it may have lost the group."""
    async with replica(sagas) as first:
        first.memory.running["gone"] = reference("gone")
        await sagas.redis.xadd(keys.changed(sagas.prefix, OWNER), {"group": "gone"})
        await first.looks_at("gone")


async def test_a_flushed_redis_does_not_deafen_the_reader(sagas: Sagas) -> None:
    """Not even if its clock, of which the numbers of entries are made, was ahead before."""
    stream = keys.changed(sagas.prefix, OWNER)
    await sagas.redis.xadd(stream, {"group": "none"}, id=AHEAD)
    async with replica(sagas) as first:
        await keeps(sagas, AHEAD)
        await sagas.redis.delete(stream, keys.heard(sagas.prefix, OWNER))
        newest = await change(sagas, "a")
        await first.looks_at("a")
        await keeps(sagas, newest)


async def test_nor_does_one_that_was_flushed_while_nobody_was_there(sagas: Sagas) -> None:
    await sagas.groups.store.streams.keep_place(OWNER, READER, AHEAD)
    async with replica(sagas) as first:
        newest = await change(sagas, "a")
        await first.looks_at("a")
        await keeps(sagas, newest)
