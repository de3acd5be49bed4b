"""Builds a reconciler that runs inside a test."""

from collections.abc import Callable
from operator import attrgetter

from handlers.jobgroups.cache import ObjectCache
from handlers.jobgroups.queue_watch import QueueWatch
from handlers.jobgroups.reconciler import Reconciler
from handlers.jobgroups.reporter import Reporter
from handlers.jobgroups.steps import Steps
from handlers.kube.client import ApiClient
from handlers.kube.workqueue import WorkQueue
from jobgroup import Store


def build_reconciler(
    api: ApiClient,
    store: Store,
    is_leader: Callable[[], bool] = lambda: True,
    cache: ObjectCache | None = None,
) -> Reconciler:
    """Build a reconciler as startup does, with a work queue of its own."""
    cache = cache or ObjectCache()
    watch = QueueWatch(store, cache)
    reporter = Reporter(api, store, cache, watch)
    steps = Steps(api, store, cache, reporter, "cluster", is_leader)
    queue = WorkQueue(attrgetter("namespace"), attrgetter("is_large"))
    return Reconciler(api, store, cache, reporter, steps, queue, watch)
