"""The operator's life: settings, the lease, the loops that work, and a clean end.

kopf watches nothing before the startup handlers return, so the lease is awaited there: a replica
that does not lead does nothing at all.
"""

import asyncio
import logging
import os
import time
from contextlib import suppress
from typing import Any

import kopf

from handlers.cluster import ApiError, Cluster, Ref, login
from handlers.follow import Follower
from handlers.health import Health
from handlers.lease import Lease
from handlers.metrics import Metrics
from handlers.pools import Pools
from handlers.reconcile import Reconciler
from handlers.workqueue import WorkQueue
from jobgroup import Driver, Store, __version__, connect, pool, resource
from jobgroup.connection import RedisError, leave_if_cancelled
from jobgroup.settings import Settings, SettingsError, read_settings
from jobgroup.snapshot import Totals

logger = logging.getLogger(__name__)

# A loop that has not come round for so long is dead, whatever it waits for.
DEAD_SECONDS = 120
STOP_SECONDS = 5


class Operator:
    """All that runs in this process."""

    def __init__(self, settings: Settings, kopf_settings: kopf.OperatorSettings) -> None:
        self.cluster = Cluster(kopf_settings)
        self.queue = WorkQueue[Ref]()
        self.metrics = Metrics()
        self.store = Store(connect(settings.redis_url), settings.prefix, observer=self.metrics)
        self.reconciler: Reconciler | None = None
        self._settings = settings
        self._health = Health(settings.port, self.metrics.registry)
        self._lease = Lease(
            self.cluster, settings.namespace, settings.lease_name, settings.identity
        )
        self.pools = Pools(self.cluster, self.store.queues, lambda: self._lease.is_held)
        self._tasks: list[asyncio.Task[None]] = []
        self._redis_error = ""
        self.metrics.leads = lambda: self._lease.is_held
        self.metrics.writes = self.cluster.writes
        self.metrics.pools = self.pools.statuses

    async def start(self) -> None:
        """Wait until this replica leads, then let everything run."""
        try:
            await self._health.start()
        except OSError as error:
            raise SettingsError(
                f"PORT: nobody can listen on {self._settings.port}: {error}"
            ) from None
        self._health.ready["redis"] = lambda: self._redis_error
        self._run("redis", self._ask_redis())
        owner = await self._own_cluster()
        await self._lease.acquire()
        self.metrics.heard()
        self.reconciler = Reconciler(
            self.cluster, self.store, owner, self.queue, lambda: self._lease.is_held
        )
        driver = Driver(self.store)
        self.metrics.repairs = lambda: driver.counters.repairs
        follower = Follower(
            self.store,
            owner,
            # All replicas of a release are one reader.
            f"{self._settings.namespace}/{self._settings.lease_name}",
            self._settings.namespaces,
            self.reconciler.memory,
            self.queue,
        )
        self._run("lease", self._lease.keep())
        self._run("driver", driver.run())
        self._run("changes", follower.hear_changes())
        self._run("progress", follower.look_at_progress())
        self._run("pools", self.pools.run())
        for number in range(self._settings.workers):
            self._run(f"worker {number}", self.reconciler.work())
        self._health.live["driver"] = lambda: _is_stuck(driver.alive_at)
        self._health.live["changes"] = lambda: _is_stuck(follower.alive_at)
        self._health.live["pools"] = lambda: _is_stuck(self.pools.alive_at)
        self._health.live["lease"] = lambda: "" if self._lease.is_held else "it is lost"
        for plural, is_needed in ((resource.PLURAL, True), (pool.PLURAL, False)):
            self._health.live[f"watch of {plural}"] = WatchCheck(plural, is_needed)

    async def stop(self) -> None:
        """End everything and let another replica begin."""
        for task in self._tasks:
            task.remove_done_callback(_die_with)
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        await self._lease.release()
        await self._health.stop()
        await self.cluster.close()
        with suppress(Exception):
            await self.store.redis.aclose()

    def _run(self, name: str, work: Any) -> None:
        """Run something for as long as the process lives; when it ends, so does the process."""
        task = asyncio.create_task(work, name=f"jobgroup {name}")
        task.add_done_callback(_die_with)
        self._tasks.append(task)

    async def _own_cluster(self) -> str:
        while True:
            try:
                return await self.cluster.uid()
            except ApiError as error:
                logger.warning("waiting for the API server: %s", error)
                await asyncio.sleep(1)

    async def _ask_redis(self) -> None:
        """Ask Redis now and then whether it serves, and the leader how many groups there are.

        Not with a PING: one that is full, or only copies another since a failover, answers that.
        """
        while True:
            leave_if_cancelled()
            try:
                await self.store.epoch()
                self._redis_error = ""
            except Exception as error:
                said = (
                    f"Redis at {self._settings.redis_place} does not answer as it should: {error}"
                )
                if not self._redis_error:
                    logger.error("%s", said)
                self._redis_error = said
            self.metrics.redis_answers = not self._redis_error
            self.metrics.totals = await self._count_groups()
            await asyncio.sleep(2)

    async def _count_groups(self) -> Totals | None:
        with suppress(RedisError):  # the next ping will tell
            if self._lease.is_held and not self._redis_error:
                return await self.store.totals()
        return None


def _die_with(task: asyncio.Task[None]) -> None:
    """End the process with a loop that must not end: nothing is lost, another begins."""
    if not task.cancelled():
        logger.critical("%s ended: %r", task.get_name(), task.exception() or "lost")
        os._exit(1)


def _is_stuck(alive_at: float) -> str:
    return "it is stuck" if time.monotonic() - alive_at > DEAD_SECONDS else ""


class WatchCheck:
    """kopf does not restart a watcher that died; then this process is of no use.

    A kind that is not needed may not be installed: nobody misses its watcher before there was one.
    """

    def __init__(self, plural: str, is_needed: bool = True) -> None:
        self._watcher = f"watcher for {plural}."
        self._is_needed = is_needed
        self._missed_since: float | None = None

    def __call__(self) -> str:
        """Say what is wrong: a watcher may be missing for a moment, but not for long."""
        now = time.monotonic()
        if any(task.get_name().startswith(self._watcher) for task in asyncio.all_tasks()):
            self._is_needed, self._missed_since = True, None
        elif self._is_needed and self._missed_since is None:
            self._missed_since = now
        missed = 0.0 if self._missed_since is None else now - self._missed_since
        return "nobody watches" if missed > DEAD_SECONDS else ""


class NoDiffs(kopf.DiffBaseStorage):
    """kopf copies each object at each event to find what changed; nobody here asks it."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Say that there is nothing to compare."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Say that nothing was kept."""
        return None

    def store(self, **_: Any) -> None:
        """Keep nothing."""


def choose(settings: kopf.OperatorSettings) -> None:
    """Set what the operator relies on."""
    # Events are few and deliberate here; kopf would post one for every log line.
    settings.posting.enabled = False
    # kopf strips the finalizer of this name from objects that only have event handlers,
    # so it must never be the one the operator itself relies on.
    settings.persistence.finalizer = "jobgroups.dev/unused-by-kopf"
    settings.persistence.diffbase_storage = NoDiffs()
    # A restart lists every object there is: in pages, so that few of them are in hand at a time.
    settings.watching.chunk_size = 100
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    # Handlers return at once, so an object's task is soon gone: a limit would only have bodies wait
    # for tasks that idle. With a timeout of 0 Python 3.11 would never look into the queue.
    settings.queueing.worker_limit = None
    settings.queueing.idle_timeout = 0.001
    settings.queueing.exit_timeout = 1
    settings.process.ultimate_exiting_timeout = 8
    # That an event was put into the queue is no news.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)


@kopf.on.login()
def log_in(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Let kopf in the same way as ourselves."""
    return login(**kwargs)


# kopf would try again a minute later, with what the first try left running.
@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Choose the settings, say which version runs, and begin once this replica leads."""
    choose(settings)
    logger.info("jobgroup-operator %s", __version__)
    try:
        chosen = read_settings()
        # Whoever watches some namespaces may have no right to look at all of them.
        settings.scanning.disabled = bool(chosen.namespaces)
        memo.operator = Operator(chosen, settings)
        await memo.operator.start()
    except SettingsError as refusal:
        # Not kopf's PermanentError, which buries the sentence under a traceback.
        logger.critical("%s", refusal)
        raise SystemExit(2) from None
    except BaseException:
        # Stopped while it waits for the lease: kopf cleans up only what has started.
        await _stop(memo)
        raise


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """End cleanly."""
    await _stop(memo)


async def _stop(memo: kopf.Memo) -> None:
    if "operator" in memo:
        await memo.operator.stop()
