"""Sagas under way while servers fail: stock workers, and drivers as processes of their own.

Redis replicates asynchronously, so a master that fails can lose the last writes that it had
acknowledged. A probe finds out which these are: it writes to the master, and waits until all
replicas have the write. What was known to the test before the last confirmed write was sent is on
every replica. A group that was acknowledged before must exist afterwards; a job that was started,
or had ended, before must not start again. What came after it may be lost, and is counted.
"""

import asyncio
import os
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, cycle, pairwise
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from jobgroup import GroupNotFoundError, GroupState, JobGroups
from jobgroup.model import names
from jobgroup.store.connection import RedisError, is_transient, leave_if_cancelled
from testbed import ROOT
from testbed.servers.processes import Server
from testbed.servers.redis_cluster import ClusterServers
from testbed.servers.redis_kinds import master_of
from testbed.servers.redis_sentinel import REPLICAS, SentinelServers
from testbed.servers.stock import fails_for_good, returns, takes
from testbed.support.sagas import GROUP_EVENTS, peek
from testbed.support.waiting import eventually
from tests.sagas.failover.supervised import SupervisedWorker

PREFIX = "{shop}"
DRIVERS = 2
# The id of a removed group cannot be used again.
NUMBERS = count(1)
PAY: dict[str, Any] = {"name": "pay", "queueName": "payments"}
RESERVE: dict[str, Any] = {"name": "reserve", "queueName": "stock"}
# It fails after most of the other jobs have completed.
SHIP: dict[str, Any] = {"name": "ship", "queueName": "payments", "opts": {"delay": 300}}
UNDOS = {"pay": {"name": "refund"}, "reserve": {"name": "release"}}
UNDO_MS = 50
Servers = SentinelServers | ClusterServers
# Which stock workers run the jobs, the undos of "pay", and "reserve" with its undos. Not all
# survive a failover. In a Cluster, BullMQ 6.7 for Node may stop for ever if a delayed job is
# pending. BullMQ for Python may lose the end of active jobs, which run again without their locks.
FLAVOURS = {
    SentinelServers: ("bullmq6", "bullmq5", "bullmq6"),
    ClusterServers: ("bullmq5", "bullmq6", "bullmq6"),
}


@dataclass
class Figures:
    """What happened to the groups of a round."""

    groups: int = 0
    undos: int = 0
    lost: int = 0
    doubled: int = 0
    restarted: int = 0
    # What was lost or doubled although all replicas had it before the master failed. It may not be.
    lost_for_no_reason: list[str] = field(default_factory=list)
    doubled_for_no_reason: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        said = f"{self.groups} sagas, {self.undos} undos; {self.lost} lost, {self.doubled} doubled"
        return f"{said}; {self.restarted} workers restarted" if self.restarted else said


class Load:
    """The groups of a round, with workers and drivers that stay for all rounds."""

    def __init__(
        self,
        servers: Servers,
        groups: JobGroups,
        workers: list[SupervisedWorker],
        drivers: list[Server],
    ) -> None:
        self.servers = servers
        self._groups = groups
        self._workers = workers
        self._drivers = drivers
        self._confirmed_at = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin a round."""
        # When each group was acknowledged, and the state in which it must end.
        self._acknowledged: dict[str, float] = {}
        self._expected: dict[str, str] = {}
        self._read = [len(worker.reports) for worker in self._workers]
        self._restarts = self._count_restarts()

    async def add(self, state: str = "FAILED") -> None:
        """Create a group that ends in this state; continue to try while Redis is unavailable."""
        group_id = f"saga-{next(NUMBERS)}"
        jobs = [PAY, RESERVE] if state == "COMPLETED" else [PAY, RESERVE, SHIP]
        await persist(lambda: self._groups.add_group("order", jobs, UNDOS, group_id))
        self._acknowledged[group_id] = time.monotonic()
        self._expected[group_id] = state

    async def _produce(self, rest: float) -> None:
        for state in cycle(("FAILED", "FAILED", "FAILED", "COMPLETED")):
            await self.add(state)
            await asyncio.sleep(rest)

    @asynccontextmanager
    async def producing(self, producers: int = 1, rest: float = 0.03) -> AsyncIterator[None]:
        """Create groups meanwhile."""
        tasks = [asyncio.create_task(self._produce(rest)) for _ in range(producers)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(ended, asyncio.CancelledError), ended

    async def compensate(self, groups: int = 60, undone: int = 20) -> None:
        """Create groups that fail, and wait until some of their jobs were undone."""
        await asyncio.gather(*(self.add() for _ in range(groups)))
        await eventually(lambda: self._are_undone(undone))

    async def _are_undone(self, number: int) -> bool:
        ended = [each.get("name") for each in self._reports() if each["event"] == "completed"]
        return sum(ended.count(undo["name"]) for undo in UNDOS.values()) >= number

    def _count_restarts(self) -> int:
        return sum(worker.restarts for worker in self._workers)

    async def _restart_stopped(self, unless_heard: bool = False) -> None:
        """Restart workers that gave up and, if jobs wait for them, those that report nothing."""
        for worker in self._workers:
            if worker.has_given_up or (unless_heard and worker.is_silent):
                await worker.restart()

    def _reports(self) -> Iterator[dict[str, Any]]:
        for worker, read in zip(self._workers, self._read, strict=True):
            yield from worker.reports[read:]

    @asynccontextmanager
    async def probing(self) -> AsyncIterator[None]:
        """Find out until when all replicas of the master have everything; at least once."""
        replicas = REPLICAS if isinstance(self.servers, SentinelServers) else 1
        self._confirmed_at = 0.0
        url = master_of(self.servers.url, PREFIX)
        async with Redis.from_url(url, socket_timeout=2) as client:
            probe = asyncio.create_task(self._probe(client, replicas))
            try:
                await eventually(self._is_confirmed)
                yield
            finally:
                probe.cancel()
                await asyncio.wait([probe])

    async def _is_confirmed(self) -> bool:
        return self._confirmed_at > 0

    async def _probe(self, client: Redis, replicas: int) -> None:
        with suppress(RedisError):  # the master has failed
            while True:
                sent_at = time.monotonic()
                pipeline = client.pipeline(transaction=False)
                pipeline.set(f"{PREFIX}:probe", 1)
                pipeline.execute_command("WAIT", replicas, 1000)
                _, confirmed = await pipeline.execute()
                if confirmed >= replicas:
                    self._confirmed_at = sent_at

    async def moved_after(self, moment: float) -> float:
        """Return when a saga first changed its state after a moment; 0 if none did.

        Both are times of the clock that the servers and the tests share.
        """
        key = names.events_key(PREFIX, "payments")
        since = round(moment * 1000)
        entries: Any = await persist(lambda: self._groups.store.redis.xrange(key, since))
        for entry_id, fields in entries:
            if fields.get("event") in GROUP_EVENTS:
                return int(entry_id.partition("-")[0]) / 1000
        return 0

    async def has_moved_since(self, moment: float) -> bool:
        """Return whether a saga has changed its state after a moment."""
        return await self.moved_after(moment) > 0

    async def is_noticed(self) -> bool:
        """Return whether each driver has reported since the start that Redis is unavailable."""
        return all("redis: " in driver.log.read_text() for driver in self._drivers)

    async def finish(self) -> Figures:
        """Wait until every group has ended as it must; remove all; return what happened."""
        figures = Figures(groups=len(self._acknowledged))
        await self._restart_stopped()
        for group_id, acknowledged_at in self._acknowledged.items():
            state = await self._end_of(group_id)
            if state is None:
                figures.lost += 1
                if acknowledged_at < self._confirmed_at:
                    figures.lost_for_no_reason.append(group_id)
            else:
                self._check(state)
                figures.undos += state.undone_count
        await self._restart_stopped()
        figures.restarted = self._count_restarts() - self._restarts
        self._count_doubled(figures)
        for group_id in self._acknowledged:
            await self._remove(group_id)
        assert [driver.code for driver in self._drivers] == [None] * DRIVERS, self._said()
        return figures

    def _said(self) -> str:
        """Return the last lines of the drivers, and the last report and error of each worker."""
        said = [driver.log_tail() for driver in self._drivers]
        for worker in self._workers:
            errors = [each for each in worker.reports if each["event"] == "error"]
            last = [*worker.reports[-1:], *errors[-1:]]
            said.append(f"{worker.flavour}: {len(errors)} errors, {time.monotonic()}: {last}")
        return "\n".join(said)

    async def _remove(self, group_id: str) -> None:
        # Redis lost it, or the answer of the call that removed it was lost.
        with suppress(GroupNotFoundError):
            await persist(lambda: self._groups.remove_group(group_id))

    async def _end_of(self, group_id: str) -> GroupState | None:
        """Return a group that has ended, or None if it does not exist."""
        state: GroupState | None = None

        async def has_ended() -> bool:
            nonlocal state
            state = await persist(lambda: peek(self._groups.store, group_id))
            if state is not None and not state.ended:
                await self._restart_stopped(unless_heard=True)
            return state is None or state.ended

        try:
            await eventually(has_ended)
        except TimeoutError:
            jobs = await self._groups.get_group_jobs(group_id)
            raise AssertionError(f"did not end: {state} {jobs}\n{self._said()}") from None
        return state

    def _check(self, state: GroupState) -> None:
        """Check that a group was judged by what its jobs did."""
        failed = state.state != "COMPLETED"
        assert state.state == self._expected[state.id], state
        counts = state.completed_count, state.failed_count, state.cancelled_count
        # A job whose worker lost it may fail too, because nothing starts again in a failed group.
        assert state.failed_count >= 1 if failed else counts == (2, 0, 0), state
        assert sum(counts) == state.total_jobs, state
        assert (state.undo_count, state.undone_count, state.undo_failed_count) == (
            (state.completed_count, state.completed_count, 0) if failed else (0, 0, 0)
        ), state

    def _count_doubled(self, figures: Figures) -> None:
        """Count starts that were not the first one of their job."""
        started: dict[tuple[str, str], list[float]] = defaultdict(list)
        ended: dict[tuple[str, str], list[float]] = defaultdict(list)
        for report in self._reports():
            if report["event"] in ("started", "completed", "failed"):
                where = started if report["event"] == "started" else ended
                where[report["name"], report["id"]].append(report["at"])
        abandoned = set[tuple[str, str]]().union(*(worker.abandoned for worker in self._workers))
        for job, starts in started.items():
            starts.sort()
            for first, again in pairwise(starts):
                figures.doubled += 1
                steps = [first, *(at for at in ended[job] if first <= at <= again)]
                if max(steps) < self._confirmed_at and job not in abandoned:
                    figures.doubled_for_no_reason.append(" ".join(job))


async def persist(call: Any) -> Any:
    """Call until Redis is available."""
    while True:
        try:
            result = await call()
            leave_if_cancelled()
            return result
        except RedisError as error:
            leave_if_cancelled()
            if not is_transient(error):
                raise
            await asyncio.sleep(0.05)


@contextmanager
def driver(url: str, log: Path) -> Iterator[Server]:
    """Run `jobgroup drive` in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "REDIS_URL": url}
    command = [sys.executable, "-m", "jobgroup", "--prefix", PREFIX, "drive"]
    with Server(
        "jobgroup drive", command, log, lambda _: "driving" in log.read_text(), env
    ) as process:
        yield process
        assert "Traceback" not in log.read_text(), process.log_tail(40)


@asynccontextmanager
async def load(servers: Servers, folder: Path) -> AsyncIterator[Load]:
    """Start workers and drivers."""
    url = servers.url
    jobs, undos, both = FLAVOURS[type(servers)]
    behaviour = {"pay": returns({"tx": 1}), "ship": fails_for_good("no stock")}
    stock_queues = {
        "stock": {"reserve": returns({"shelf": 1})},
        "stock:compensation": {"release": takes(UNDO_MS)},
    }
    async with (
        SupervisedWorker(jobs, url, PREFIX, {"payments": behaviour}) as payments,
        SupervisedWorker(
            undos, url, PREFIX, {"payments:compensation": {"refund": takes(UNDO_MS)}}
        ) as refunds,
        SupervisedWorker(both, url, PREFIX, stock_queues) as stock,
        JobGroups.connect(url, PREFIX) as groups,
    ):
        with (
            driver(url, folder / "driver-1.log") as one,
            driver(url, folder / "driver-2.log") as other,
        ):
            yield Load(servers, groups, [payments, refunds, stock], [one, other])
