"""A queue as stock clients use it: BullMQ's own code and Lua, one step at a time.

A Worker runs concurrently. This class does the same with the same objects, but only when a test
calls it. Nothing here imitates BullMQ; the one script that the Python package no longer has, the
bulk retry of 5.x, is read from the Node package.
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
from tests.sagas.histories.model import MAX_STALLS

LOCK_MS = 600_000
_RETRY_ALL_5X = CLIENTS / "node_modules/bullmq5/dist/cjs/scripts/moveJobsToWait-8.js"


class StockConnection:
    """A client with the scripts of BullMQ's own connection, and one script of 5.x."""

    def __init__(self, redis: Redis) -> None:
        self.conn = redis
        self.commands = {
            name: redis.register_script(loadScript(file))
            for name, file in SCRIPT_DEFINITIONS.items()
        }
        self.commands["moveJobsToWait5"] = redis.register_script(_lua_in(_RETRY_ALL_5X))


def _lua_in(module: Path) -> str:
    """Return the script that a module of Node's package holds as its one template literal."""
    _, script, _ = module.read_text().split("`")
    return script


class Holder:
    """A worker with a job, which it may have lost."""

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
        """Report failure: unless it is final, BullMQ retries according to the job's options."""
        error = UnrecoverableError(reason) if finally_ else RuntimeError(reason)
        await self.job.moveToFailed(error, self.token)


class StockQueue:
    """One queue."""

    def __init__(self, connection: StockConnection, prefix: str, name: str) -> None:
        # These three are what BullMQ's Job asks of its queue.
        self.backend = RedisBackend(name, connection, prefix=prefix, owns_connection=False)
        self.opts = {"lockDuration": LOCK_MS}
        self.qualifiedName = self.backend.qualifiedName
        self._connection = connection

    async def take(self, token: str) -> Holder | None:
        """Start the next job, as a worker does."""
        data, job_id, *_ = await self.backend.moveToActive(token, self.opts)
        return Holder(Job.fromJSON(self, data, job_id), token) if job_id else None

    async def lose_worker(self, job_id: str) -> None:
        """Delete the lock of a job, as if its worker had died."""
        await self._connection.conn.delete(self.backend.toKey(f"{job_id}:lock"))

    async def check_stalls(self) -> None:
        """Check for stalled jobs, as workers do every 30 seconds."""
        await self._connection.conn.delete(self.backend.toKey("stalled-check"))
        await self.backend.moveStalledJobsToWait(MAX_STALLS, LOCK_MS)

    async def promote(self, job_id: str) -> None:
        """Make a delayed job due."""
        await self.backend.promote(job_id)

    async def remove(self, job_id: str) -> bool:
        """Remove a job by hand; BullMQ refuses while it is locked."""
        return bool(await self.backend.remove(job_id, remove_children=True))

    async def drain(self) -> None:
        """Remove all that is pending."""
        await self.backend.drain(delayed=True)

    async def sweep(self, place: str) -> None:
        """Remove completed or failed jobs, as retention does."""
        await self.backend.cleanJobsInSet(place)

    async def retry(self, job_id: str, place: str) -> None:
        """Run a finished job again by hand."""
        job = await Job.fromId(self, job_id)
        await job.retry(place)

    async def retry_all(self) -> None:
        """Run every failed job again."""
        await self.backend.retryJobs("failed", 1000, _far_future())

    async def retry_all_5x(self) -> None:
        """Retry every failed job as 5.x does, without the ledger."""
        keys, args = self.backend.scripts.moveJobsToWaitArgs("failed", 1000, _far_future())
        await self._connection.commands["moveJobsToWait5"](keys=keys, args=args)


def _far_future() -> int:
    return time.time_ns() // 1_000_000 + 1_000_000


def _spell_as_node(value: Any) -> str:
    """Write JSON as JSON.stringify does: only half a surrogate pair is escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)
