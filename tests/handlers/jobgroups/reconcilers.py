"""Builds reconcilers that run inside a test, with or without servers."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from redis import Redis

from handlers.jobgroups.cache import ObjectCache
from handlers.jobgroups.left import LeftObjects
from handlers.jobgroups.queue_watch import QueueWatch
from handlers.jobgroups.reconciler import Reconciler
from handlers.jobgroups.reporter import Reporter
from handlers.jobgroups.steps import Steps
from handlers.kube.client import ApiClient
from handlers.kube.refs import Ref, ref_of
from handlers.kube.releases import Releases
from handlers.kube.workqueue import WorkQueue
from handlers.settings import read_settings
from jobgroup import Store
from testbed.support.stages import Stage


def build_reconciler(
    api: ApiClient,
    store: Store,
    is_leader: Callable[[], bool] = lambda: True,
    cache: ObjectCache | None = None,
    queue: WorkQueue[Ref] | None = None,
) -> Reconciler:
    """Build a reconciler as startup does."""
    cache = cache or ObjectCache()
    watch = QueueWatch(store, cache)
    if queue is None:
        queue = WorkQueue(attrgetter("namespace"), attrgetter("is_large"))
    reporter = Reporter(api, store, cache, watch, queue)
    settings = read_settings({})
    releases = Releases(api, settings)
    left = LeftObjects(releases, cache, queue)
    steps = Steps(api, store, cache, reporter, left, "cluster", settings.release, is_leader)
    return Reconciler(api, store, cache, reporter, steps, queue, watch, releases, left)


class Replica:
    """A reconciler that runs inside the test; the test sets whether it is the leader."""

    def __init__(self, stage: Stage, api: ApiClient, store: Store) -> None:
        self.is_leader = True
        self.ahead = 0
        self.resources = stage.resources
        self.store = store
        self.api = api
        self.queue: WorkQueue[Ref] = WorkQueue()
        self._redis_url = stage.redis.url
        self._reconciler = build_reconciler(api, store, lambda: self.is_leader, queue=self.queue)

    async def reconcile(self) -> float | None:
        """Pass the watch event of the object, and reconcile it instead of a worker.

        Return after how many seconds a worker would reconcile it again.
        """
        body = self.resources.get("order")
        self._reconciler.enqueue(ref_of(body), body)
        self.queue.discard(ref_of(body))
        return await self._reconciler.reconcile(ref_of(body))

    def delete(self, *keys: str) -> None:
        """Delete keys of Redis."""
        with Redis.from_url(self._redis_url) as redis:
            assert redis.delete(*keys) == len(keys)

    def found(self) -> dict[bytes, Any]:
        """Return all keys of Redis except the stream of changes."""
        with Redis.from_url(self._redis_url) as redis:
            keys = [key for key in redis.scan_iter() if b":changed:" not in key]
            # Two dumps of a large hash can have its fields in different orders.
            return {
                key: redis.hgetall(key) if redis.type(key) == b"hash" else redis.dump(key)
                for key in keys
            }
