"""The start and the stop of the operator: settings, leader election, loops.

kopf starts to watch when the startup handlers have returned. So the startup handler waits for the
leader lease: a replica that does not lead reads no objects and writes nothing to Kubernetes but the
lease. Its driver settles groups in Redis beside that of the leader.
"""

import asyncio
import logging
import os
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any, Protocol

import kopf
from prometheus_client import CollectorRegistry

from handlers.jobgroups.cache import ObjectCache
from handlers.jobgroups.counts import NamespaceCounts
from handlers.jobgroups.follower import Follower
from handlers.jobgroups.left import LeftObjects
from handlers.jobgroups.queue_watch import QueueWatch
from handlers.jobgroups.reconciler import Reconciler
from handlers.jobgroups.reporter import Reporter
from handlers.jobgroups.steps import Steps
from handlers.kube.client import ApiClient, ApiError
from handlers.kube.kopf_settings import configure_kopf, login, namespaces_of_command
from handlers.kube.leader import RELEASE_SECONDS, Lease
from handlers.kube.ratelimit import TokenBucket
from handlers.kube.refs import ref_of
from handlers.kube.refusals import Refusals
from handlers.kube.releases import Releases, Scope
from handlers.kube.rights import reviews
from handlers.kube.rights_check import RightsCheck
from handlers.kube.watches import Watches
from handlers.kube.worker import Controller
from handlers.kube.workqueue import WorkQueue
from handlers.settings import Settings, SettingsError, read_settings
from handlers.telemetry.checks import WatchCheck, check_progress
from handlers.telemetry.health import Health
from handlers.telemetry.metrics import Metrics
from handlers.telemetry.redis_probe import RedisProbe
from handlers.telemetry.state import StateCollector
from handlers.workerpools.controller import PoolController
from handlers.workerpools.scaler import Scaler
from handlers.workerpools.targets import Targets
from handlers.workerpools.worker_check import WorkerCheck
from jobgroup import Driver, Store, __version__
from jobgroup.resource.kinds import JOBGROUP, KINDS, WORKERPOOL

logger = logging.getLogger(__name__)

STOP_SECONDS = 5
# The time for tasks to stop, and to release the lease.
EXIT_SECONDS = STOP_SECONDS + RELEASE_SECONDS
# One worker for large objects for each group of this many: their writes occupy the API server.
WORKERS_PER_LARGE = 16


class Loop(Protocol):
    """A loop that records its last round."""

    @property
    def alive_at(self) -> float: ...


class Operator:
    """All parts of the operator in this process: builds, starts and stops them."""

    def __init__(self, settings: Settings, kopf_settings: kopf.OperatorSettings) -> None:
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []
        self._exit_task: asyncio.Task[None] | None = None
        self._controllers: dict[str, Controller] = {}
        self._counts: NamespaceCounts | None = None
        self._left: LeftObjects | None = None
        registry = CollectorRegistry(auto_describe=True)
        self._metrics = Metrics(registry)
        refusals = Refusals()
        self.watches = Watches(settings.watch_seconds, refusals)
        self._health = Health(settings.port, registry, self._role)
        limit = TokenBucket(settings.api_qps, settings.api_burst)
        self._api = ApiClient(kopf_settings, limit, settings.label_selector, refusals)
        scope = Scope(settings.namespaces, settings.label_selector)
        self._lease = Lease(
            self._api,
            settings.namespace,
            settings.lease_name,
            settings.identity,
            scope.annotation,
        )
        redis = settings.redis
        self._store = Store(redis.connect(), redis.prefix, observer=self._metrics)
        self._redis = RedisProbe(self._store, redis.location)
        self._driver = Driver(
            self._store, name=settings.identity, group_ttl_seconds=settings.group_ttl_seconds
        )
        queues = self._store.queues
        targets = Targets(self._api, settings.pool_opt_in)
        self._pools = PoolController(
            self._api,
            queues,
            WorkQueue(attrgetter("namespace")),
            Scaler(self._api, queues, targets, self._is_leader),
            WorkerCheck(queues, redis.prefix),
            settings.pool_max_replicas,
        )
        needed = reviews(settings.namespaces, settings.namespace, settings.lease_name)
        self._rights = RightsCheck(
            self._api, needed, self._is_leader, lambda: bool(self._pools.statuses())
        )
        registry.register(
            StateCollector(
                is_leader=self._is_leader,
                is_reviewing=lambda: self._driver.is_reviewing,
                writes=self._api.writes,
                refused=self._api.refused,
                refusals=refusals.counts,
                watch_age=self._metrics.watch_age,
                driver=self._driver.counters,
                pools=self._pools.statuses,
                redis=self._redis,
                namespaces=lambda: self._counts.by_namespace() if self._counts else {},
                left=lambda: 0 if self._left is None else len(self._left),
            )
        )

    def _is_leader(self) -> bool:
        return self._lease.is_held

    def _role(self) -> str:
        """Return what a replica does that does not lead."""
        if self._is_leader():
            return ""
        reviews = " and reviews" if self._driver.is_reviewing else ""
        return f"this replica waits for the Lease, and settles{reviews} groups"

    async def start(self) -> None:
        """Start the driver, wait until this replica leads, then start all other loops."""
        try:
            await self._health.start()
        except OSError as error:
            port = self._settings.port
            raise SettingsError(f"PORT: cannot listen on port {port}: {error}") from None
        self._health.add_ready_check("redis", self._redis.check)
        self._run("redis", self._redis.run())
        self._start_loop("driver", self._driver, self._driver.run())
        self._health.add_ready_check("rights", self._rights.check)
        self._health.add_ready_note("optional rights", self._rights.note)
        self._run("rights", self._rights.run())
        owner = await self._read_cluster_uid()
        await self._lease.acquire()
        self._metrics.record_watch_event()
        self._run("lease", self._lease.keep())
        self._health.add_live_check("lease", self._check_lease)
        self._start_jobgroups(owner)
        self._start_loop("pools", self._pools, self._pools.run())
        self._controllers[WORKERPOOL.plural] = self._pools
        for kind in KINDS:
            check = WatchCheck(self.watches, kind.plural, kind.is_required)
            self._health.add_live_check(f"watch of {kind.plural}", check.is_live)
            self._health.add_ready_check(f"watch of {kind.plural}", check.is_ready)

    def _start_jobgroups(self, owner: str) -> None:
        cache, queue = ObjectCache(), WorkQueue(attrgetter("namespace"), attrgetter("is_large"))
        watch = QueueWatch(self._store, cache)
        default_ttl = self._settings.jobgroup_ttl_seconds
        reporter = Reporter(self._api, self._store, cache, watch, queue, default_ttl)
        releases, release = Releases(self._api, self._settings), self._settings.release
        left = self._left = LeftObjects(releases, cache, queue)
        steps = Steps(
            self._api, self._store, cache, reporter, left, owner, release, self._is_leader
        )
        reconciler = Reconciler(
            self._api,
            self._store,
            cache,
            reporter,
            steps,
            queue,
            watch,
            releases,
            left,
            default_ttl,
        )
        # All replicas of a release share one checkpoint.
        namespaces = self._settings.namespaces
        follower = Follower(self._store, owner, release, namespaces, cache, queue)
        self._start_loop("changes", follower, follower.follow_changes())
        self._run("progress", follower.follow_progress())
        self._run("queues", watch.run(queue))
        self._run("left objects", left.run())
        workers = self._settings.workers
        for number in range(workers):
            self._run(f"worker {number}", reconciler.work())
        for number in range(max(1, workers // WORKERS_PER_LARGE)):
            self._run(f"worker {number} of large objects", reconciler.work(large=True))
        self._controllers[JOBGROUP.plural] = reconciler
        if self._settings.metrics_by_namespace:
            self._controllers[JOBGROUP.plural] = self._counts = NamespaceCounts(reconciler)
            self.watches.on_list(JOBGROUP.plural, self._counts.retain)

    async def stop(self) -> None:
        """Stop everything and release the lease for another replica."""
        for task in self._tasks:
            task.remove_done_callback(self._exit_with)
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        await self._lease.release()
        await self._health.stop()
        await self._api.close()
        with suppress(Exception):
            await self._store.aclose()

    def dispatch(self, plural: str, event: Mapping[str, Any]) -> None:
        """Pass a watch event to the controller of its kind."""
        self._metrics.record_watch_event()
        controller, body = self._controllers[plural], event["object"]
        if event["type"] == "DELETED":
            controller.forget(ref_of(body))
        else:
            controller.enqueue(ref_of(body), dict(body))

    def _start_loop(self, name: str, loop: Loop, work: Coroutine[Any, Any, None]) -> None:
        """Run a loop, and have /livez check its progress."""
        self._run(name, work)
        self._health.add_live_check(name, lambda: check_progress(loop.alive_at))

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a task as long as the process; when it ends, the process exits."""
        task = asyncio.create_task(work, name=f"jobgroup {name}")
        task.add_done_callback(self._exit_with)
        self._tasks.append(task)

    def _exit_with(self, task: asyncio.Task[None]) -> None:
        """Exit the process when a task ends unexpectedly; a new process continues its work."""
        if task.cancelled():
            return
        reason = task.exception() or "it returned"
        logger.critical(
            "the task %s ended unexpectedly (%r); the process exits and must be restarted",
            task.get_name(),
            reason,
        )
        if not self._lease.is_held:
            os._exit(1)
        self._exit_task = asyncio.create_task(self._stop_and_exit())

    async def _stop_and_exit(self) -> None:
        """Release the lease, so that another replica leads at once, and exit."""
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                await self.stop()
        finally:
            os._exit(1)

    def _check_lease(self) -> str:
        return "" if self._lease.is_held else "this replica lost the leader lease"

    async def _read_cluster_uid(self) -> str:
        while True:
            try:
                return await self._api.uid()
            except ApiError as error:
                logger.warning("cannot reach the API server; retrying: %s", error)
                await asyncio.sleep(1)


@kopf.on.login()
def log_in(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Log kopf in as our own client does."""
    return login(**kwargs)


# kopf would retry after a minute, while the tasks of the first attempt still run.
@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Read the settings, log the version, and start once this replica leads."""
    logger.info("jobgroup-operator %s", __version__)
    try:
        chosen = read_settings(namespaces=namespaces_of_command())
        memo.operator = operator = Operator(chosen, settings)
        operator.watches.install()
        configure_kopf(settings, operator.watches, bool(chosen.namespaces), chosen.label_selector)
        await operator.start()
    except SettingsError as refusal:
        # Not kopf's PermanentError, which would log a traceback around the message.
        logger.critical("%s", refusal)
        raise SystemExit(2) from None
    except BaseException:
        # Stopped while waiting for the lease: kopf calls no cleanup handler then.
        await _stop(memo)
        raise


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Stop the operator."""
    await _stop(memo)


async def _stop(memo: kopf.Memo) -> None:
    if "operator" in memo:
        await memo.operator.stop()
