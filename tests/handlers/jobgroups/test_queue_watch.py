"""Which queues have jobs and no worker, on a real Redis; the time is passed to each check."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from handlers.jobgroups import queue_watch
from handlers.jobgroups.cache import ObjectCache
from handlers.jobgroups.queue_watch import PATIENCE_SECONDS, QueueWatch
from handlers.kube.refs import Ref
from jobgroup import Store
from jobgroup.resource.kinds import JOBGROUP

LATER = PATIENCE_SECONDS + 1
KEYS = ("wait", "active", "delayed", "meta", "events")
# The score of a delayed job that is due in the year 2100.
FAR = 4_102_444_800_000 * 0x1000


def body(*queues: str, reason: str = "Running") -> dict[str, Any]:
    conditions = [{"type": "Ready", "reason": reason}]
    return {
        "spec": {"jobs": [{"queueName": queue} for queue in queues]},
        "status": {"conditions": conditions},
    }


class Ground:
    """A watch and its cache."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self.cache = ObjectCache()
        self.watch = QueueWatch(Store(redis, prefix), self.cache)

    def track(self, name: str, *queues: str, reason: str = "Running") -> Ref:
        ref = Ref("shop", name, name, JOBGROUP.plural)
        self.cache.track(ref)
        self.watch.track(ref, body(*queues, reason=reason))
        return ref


@pytest.fixture
async def ground(redis: Redis, prefix: str) -> AsyncIterator[Ground]:
    yield Ground(redis, prefix)
    await redis.delete(*(f"{prefix}:mail:{key}" for key in KEYS))


async def test_a_queue_is_reported_once_it_had_no_worker_for_a_minute(
    redis: Redis, prefix: str, ground: Ground
) -> None:
    await redis.rpush(f"{prefix}:mail:wait", "1")
    ours, other = ground.track("order", "mail", "stock"), ground.track("other", "mail")
    ground.track("apart", "stock")
    assert await ground.watch.check(0) == []
    assert await ground.watch.check(PATIENCE_SECONDS - 1) == []
    assert ground.watch.unserved_for(ours.uid) == frozenset()
    assert await ground.watch.check(LATER) == [ours, other]
    assert ground.watch.unserved_for(ours.uid) == {"mail"}
    # The objects are reconciled only when that changes.
    assert await ground.watch.check(2 * LATER) == []
    await redis.delete(f"{prefix}:mail:wait")
    assert await ground.watch.check(3 * LATER) == [ours, other]
    assert ground.watch.unserved_for(ours.uid) == frozenset()


async def test_a_new_object_is_reported_after_the_first_check_that_covers_it(
    redis: Redis, prefix: str, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failed(_: object) -> None:
        raise RedisError("no answer")

    await redis.rpush(f"{prefix}:mail:wait", "1")
    ours = ground.track("order", "mail")
    await ground.watch.check(0)
    assert await ground.watch.check(LATER) == [ours]
    # Its worker may have come since then.
    new = ground.track("new", "mail")
    assert ground.watch.unserved_for(new.uid) == frozenset()
    with monkeypatch.context() as patched:
        patched.setattr(ground.watch._store.queues, "backlogs", failed)
        with pytest.raises(RedisError):
            await ground.watch.check(2 * LATER)
    assert ground.watch.unserved_for(new.uid) == frozenset()
    assert await ground.watch.check(2 * LATER) == [new]
    assert ground.watch.unserved_for(new.uid) == {"mail"}


@pytest.mark.parametrize("kind", ["delayed", "paused", "nothing"])
async def test_a_queue_in_which_no_job_can_start_is_not_reported(
    redis: Redis, prefix: str, ground: Ground, kind: str
) -> None:
    if kind == "delayed":
        await redis.zadd(f"{prefix}:mail:delayed", {"1": FAR})
    if kind == "paused":
        await redis.rpush(f"{prefix}:mail:wait", "1")
        await redis.hset(f"{prefix}:mail:meta", "paused", "1")
    ours = ground.track("order", "mail")
    assert await ground.watch.check(0) == []
    assert await ground.watch.check(LATER) == []
    assert ground.watch.unserved_for(ours.uid) == frozenset()


async def test_nothing_is_reported_if_redis_lists_no_connections(
    redis: Redis, prefix: str, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> None:
        return None

    await redis.rpush(f"{prefix}:mail:wait", "1")
    monkeypatch.setattr(ground.watch._store.queues, "connections", refused)
    ours = ground.track("order", "mail")
    await ground.watch.check(0)
    assert await ground.watch.check(LATER) == []
    assert ground.watch.unserved_for(ours.uid) == frozenset()


async def test_connections_are_listed_only_for_a_queue_in_which_jobs_wait_and_nothing_happens(
    redis: Redis, prefix: str, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = 0

    async def connections() -> frozenset[str]:
        nonlocal listed
        listed += 1
        return frozenset()

    monkeypatch.setattr(ground.watch._store.queues, "connections", connections)
    ground.track("order", "mail", "stock")

    async def lists() -> bool:
        before = listed
        await ground.watch.check(0)
        return listed > before

    assert not await lists()
    await redis.rpush(f"{prefix}:mail:active", "1")
    assert not await lists()
    await redis.rpush(f"{prefix}:mail:wait", "2")
    # A worker is busy, as far as one look can show.
    assert not await lists()
    await redis.xadd(f"{prefix}:mail:events", {"event": "completed"})
    assert not await lists()
    # Nothing has happened since: the active job may be that of a dead worker.
    assert await lists()
    await redis.xadd(f"{prefix}:mail:events", {"event": "added"})
    # A new job does not hide that there is no worker.
    assert await lists()
    assert await ground.watch.check(LATER) != []
    await redis.delete(f"{prefix}:mail:wait")
    assert not await lists()


async def test_more_queues_than_a_page_are_checked(
    redis: Redis, prefix: str, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_watch, "PAGE", 2)
    await redis.rpush(f"{prefix}:mail:wait", "1")
    ours = ground.track("order", "a", "b", "c", "mail", "z")
    await ground.watch.check(0)
    assert await ground.watch.check(LATER) == [ours]


async def test_what_an_earlier_process_reported_is_reported_after_one_check(
    redis: Redis, prefix: str, ground: Ground
) -> None:
    await redis.rpush(f"{prefix}:mail:wait", "1")
    ours = ground.track("order", "mail", reason="NoWorker")
    assert not ground.watch.is_checked(ours.uid)
    assert await ground.watch.check(0) == [ours]
    assert ground.watch.is_checked(ours.uid)


async def test_an_object_that_ended_is_dropped(redis: Redis, prefix: str, ground: Ground) -> None:
    await redis.rpush(f"{prefix}:mail:wait", "1")
    ours = ground.track("order", "mail")
    await ground.watch.check(0)
    ground.cache.remove(ours.uid)
    assert await ground.watch.check(LATER) == []
    assert ground.watch._used == {}
