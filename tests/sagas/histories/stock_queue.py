"""A queue as stock clients use it: BullMQ's own code and Lua, one step at a time.

A BullMQ Worker runs concurrently. StockQueue uses the same objects, but acts only when a test calls
it. It does not imitate BullMQ: all scripts are BullMQ's own. The Python package has the scripts of
6.x. Those in which 5.x differs, and those that only Node has, are read from the Node packages.
"""

import json
import time
from pathlib import Path
from typing import Any

from bullmq import Job, UnrecoverableError
from bullmq.backends.redis_backend import RedisBackend
from bullmq.redis_connection import SCRIPT_DEFINITIONS, loadScript
from redis.asyncio import Redis

from testbed.servers.stock import CLIENTS
from tests.sagas.histories.job_model import MAX_STALLS
from tests.sagas.histories.raw_queue import RawQueue

LOCK_MS = 600_000
_NODE_SCRIPTS = {
    "moveJobsToWait5": "bullmq5/dist/cjs/scripts/moveJobsToWait-8.js",
    "pause5": "bullmq5/dist/cjs/scripts/pause-7.js",
    "removeChildDependency": "bullmq6/dist/cjs/scripts/removeChildDependency-1.js",
    "removeOrphanedJobs": "bullmq6/dist/cjs/scripts/removeOrphanedJobs-1.js",
}
# The arguments of removeOrphanedJobs in Node: the keys of a queue, and the keys of a job.
_STATES = ("active", "completed", "delayed", "failed", "paused", "prioritized", "wait")
_JOB_KEYS = ("logs", "dependencies", "processed", "failed", "unsuccessful", "lock")


class StockConnection:
    """A client with the scripts of BullMQ's own connection, and some of the Node packages."""

    def __init__(self, redis: Redis) -> None:
        self.conn = redis
        self.commands = {
            name: redis.register_script(loadScript(file))
            for name, file in SCRIPT_DEFINITIONS.items()
        }
        for name, file in _NODE_SCRIPTS.items():
            self.commands[name] = redis.register_script(_lua_in(CLIENTS / "node_modules" / file))


def _lua_in(module: Path) -> str:
    """Return the script in a module of the Node package: its only template literal."""
    _, script, _ = module.read_text().split("`")
    return script


class Holder:
    """A worker that holds a job, or has lost the job's lock."""

    def __init__(self, job: Any, token: str) -> None:
        self.job = job
        self.token = token

    async def complete(self, value: Any = None, escaped: bool = True) -> None:
        """Report success, with a value in the JSON of the Python client or of the Node client."""
        if escaped:
            await self.job.moveToCompleted(value, self.token)
            return
        scripts = self.job.backend.scripts
        keys, args = scripts.moveToCompletedArgs(self.job, value, False, self.token, False)
        args[3] = _spell_as_node(value)
        await scripts.moveToFinished(self.job.id, keys, args)

    async def fail(self, reason: str, finally_: bool) -> None:
        """Report failure; BullMQ retries the job according to its options, unless it is final."""
        error = UnrecoverableError(reason) if finally_ else RuntimeError(reason)
        await self.job.moveToFailed(error, self.token)


class StockQueue(RawQueue):
    """One queue."""

    def __init__(self, connection: StockConnection, prefix: str, name: str) -> None:
        super().__init__(connection.conn, prefix, name)
        # BullMQ's Job reads these three attributes of its queue.
        self.backend = RedisBackend(name, connection, prefix=prefix, owns_connection=False)
        self.opts = {"lockDuration": LOCK_MS}
        self.qualifiedName = self.backend.qualifiedName
        self._connection = connection

    async def take(self, token: str) -> Holder | None:
        """Start the next job, as a worker does."""
        data, job_id, *_ = await self.backend.moveToActive(token, self.opts)
        return Holder(Job.fromJSON(self, data, job_id), token) if job_id else None

    async def steal(self, token: str) -> str:
        """Take the next entry of the pseudo queue without reading it; return its id."""
        _, job_id, *_ = await self.backend.moveToActive(token, self.opts)
        return str(job_id)

    async def finish(self, job_id: str, token: str, completes: bool, kept: bool) -> bool:
        """Finish a job that was stolen; return False if BullMQ refuses it."""
        job, scripts = Job(self, "stolen", {}, {}, job_id), self.backend.scripts
        keep = {"count": 1000 if kept else 0}
        try:
            if completes:
                await scripts.moveToCompleted(job, None, keep, token, False)
            else:
                await scripts.moveToFailed(job, "broken", keep, token, False)
        except (TypeError, UnrecoverableError):
            return False
        return True

    async def check_stalls(self) -> None:
        """Check for stalled jobs, as workers do every 30 seconds."""
        await self._connection.conn.delete(self.backend.toKey("stalled-check"))
        await self.backend.moveStalledJobsToWait(MAX_STALLS, LOCK_MS)

    async def promote(self, job_id: str) -> None:
        """Make a delayed job due."""
        await self.backend.promote(job_id)

    async def remove(self, job_id: str) -> bool:
        """Remove a job; return False if BullMQ refuses because the job is locked."""
        return bool(await self.backend.remove(job_id, remove_children=True))

    async def drain(self) -> None:
        """Remove all pending jobs."""
        await self.backend.drain(delayed=True)

    async def clean(self, name: str) -> None:
        """Remove all jobs of a list or set, as retention does with finished jobs."""
        await self.backend.cleanJobsInSet(name, grace=-10_000)

    async def remove_from_parent(self, job_id: str, parent_key: str) -> bool:
        """Remove a job from its parent's dependencies; return whether it was among them."""
        call = self._connection.commands["removeChildDependency"]
        job_key = self.backend.toKey(job_id)
        return bool(await call(keys=[self.backend.toKey("")], args=[job_key, parent_key]) == 0)

    async def retry(self, job_id: str, place: str, reset: bool = False) -> bool:
        """Run a finished job again; return whether the counts of its attempts were reset."""
        job = await Job.fromId(self, job_id)
        await job.retry(place, {"resetAttemptsMade": reset, "resetAttemptsStarted": reset})
        return reset

    async def retry_all(self, place: str, booked: bool) -> bool:
        """Run every finished job again, or do it as 5.x does: without a change of the ledger."""
        if booked:
            await self.backend.retryJobs(place, 1000, _far_future())
        else:
            keys, args = self.backend.scripts.moveJobsToWaitArgs(place, 1000, _far_future())
            await self._connection.commands["moveJobsToWait5"](keys=keys, args=args)
        return booked

    async def pause(self, paused: bool, moves_list: bool) -> bool:
        """Pause or resume the queue, or do it as a Node client of 5.x does: it moves the list."""
        if moves_list:
            await self._pause_5x(paused)
        else:
            await self.backend.pause(paused)
        return moves_list

    async def _pause_5x(self, paused: bool) -> None:
        await self._connection.conn.hset(self.backend.toKey("meta"), "version", "bullmq:5.62.0")
        lists = ["wait", "paused"] if paused else ["paused", "wait"]
        names = [*lists, "meta", "prioritized", "events", "delayed", "marker"]
        keys = [self.backend.toKey(name) for name in names]
        await self._connection.commands["pause5"](
            keys=keys, args=["paused" if paused else "resumed"]
        )

    async def obliterate(self) -> bool:
        """Pause the queue, and delete it with all its jobs; return whether a pause moves a list."""
        await self.backend.pause(True)
        while await self.backend.obliterate(1000, force=True):
            pass
        return False

    async def delete_keys(self) -> None:
        """Delete all keys of the queue, as removeAllQueueData does."""
        connection = self._connection.conn
        if keys := await connection.keys(self.backend.toKey("*")):
            await connection.delete(*keys)

    async def remove_orphans(self) -> bool:
        """Delete the keys of jobs that are in no list, as removeOrphanedJobs of 6.x does."""
        base = self.backend.toKey("")
        known = {*_STATES, "marker", "events", "meta", "id", "pc", "stalled", "stalled-check"}
        ids = set()
        for key in await self._connection.conn.keys(f"{base}*"):
            job_id, _, job_key = str(key).removeprefix(base).partition(":")
            if job_id not in known and (not job_key or job_key in _JOB_KEYS):
                ids.add(job_id)
        args: list[str | int] = [len(_STATES), *_STATES, len(_JOB_KEYS), *_JOB_KEYS, *sorted(ids)]
        await self._connection.commands["removeOrphanedJobs"](keys=[base], args=args)
        return True

    async def add(self, job_id: str) -> None:
        """Add a job that belongs to no group."""
        opts = {"removeOnComplete": False, "removeOnFail": False}
        await self.backend.addJob(Job(self, "foreign", {}, opts, job_id))


def _far_future() -> int:
    return time.time_ns() // 1_000_000 + 1_000_000


def _spell_as_node(value: Any) -> str:
    """Write JSON as JSON.stringify does, which escapes only lone surrogates."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)
