"""A queue as stock clients for Node use it, one step at a time: BullMQ 5 or BullMQ 6.

A process with the unmodified package performs one step per request and then replies, so a history
can be repeated. NodeQueue has the methods of StockQueue. Where a version has only one way to do
something, a method returns which way it is.
"""

import json
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from redis.asyncio import Redis

from testbed.build.toolchain import node
from testbed.servers.processes import leashed
from tests.sagas.histories.job_model import MAX_STALLS
from tests.sagas.histories.raw_queue import RawQueue
from tests.sagas.histories.stock_queue import LOCK_MS

SCRIPT = Path(__file__).with_suffix(".mjs")


class NodeError(Exception):
    """An error in the process, with its stack."""


class NodeClient:
    """A process with one version of BullMQ, which ends with this process."""

    def __init__(self, flavour: str, redis_url: str, prefix: str) -> None:
        self.is_5x = flavour == "bullmq5"
        options = {"lockDuration": LOCK_MS, "maxStalledCount": MAX_STALLS}
        command = [str(node()), str(SCRIPT), flavour, redis_url, prefix, json.dumps(options)]
        self._process = subprocess.Popen(
            leashed(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def perform(self, step: str, **fields: Any) -> Any:
        """Perform a step and return its result; raise NodeError if it fails."""
        reply = json.loads(self._exchange(json.dumps({"step": step, **fields})))
        if "error" in reply:
            raise NodeError(reply["error"])
        return reply["result"]

    def _exchange(self, request: str) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with suppress(BrokenPipeError):
            stdin.write(request + "\n")
            stdin.flush()
        if reply := stdout.readline():
            return reply
        raise NodeError(f"the process ended with code {self._process.wait()}")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@dataclass(frozen=True)
class NodeHolder:
    """A worker that holds a job, or has lost the job's lock."""

    client: NodeClient
    job: Any
    token: str

    async def complete(self, value: Any = None) -> None:
        """Report success."""
        self.client.perform("complete", token=self.token, value=value)

    async def fail(self, reason: str, finally_: bool) -> None:
        """Report failure; BullMQ retries the job according to its options, unless it is final."""
        self.client.perform("fail", token=self.token, reason=reason, final=finally_)


class NodeQueue(RawQueue):
    """One queue."""

    def __init__(self, client: NodeClient, redis: Redis, prefix: str, name: str) -> None:
        super().__init__(redis, prefix, name)
        self._client = client
        self._name = name

    async def take(self, token: str) -> NodeHolder | None:
        """Start the next job, as a worker does."""
        job = self._client.perform("take", queue=self._name, token=token)
        return NodeHolder(self._client, SimpleNamespace(**job), token) if job else None

    async def check_stalls(self) -> None:
        """Check for stalled jobs, as workers do every 30 seconds."""
        await self._redis.delete(self.key("stalled-check"))
        self._client.perform("check_stalls", queue=self._name)

    async def promote(self, job_id: str) -> None:
        """Make a delayed job due."""
        self._manage("promote", job=job_id)

    async def remove(self, job_id: str) -> bool:
        """Remove a job; return False if BullMQ refuses because the job is locked."""
        return bool(self._manage("remove", job_id))

    async def drain(self) -> None:
        """Remove all pending jobs."""
        self._manage("drain", True)

    async def clean(self, name: str) -> None:
        """Remove all jobs of a list or set, as retention does with finished jobs."""
        self._manage("clean", -10_000, 0, name)

    async def remove_from_parent(self, job_id: str, parent_key: str) -> bool:
        """Remove a job from its parent's dependencies; return whether it was among them."""
        if not await self._redis.exists(self.key(job_id)):
            return False  # a client of Node cannot read the job
        try:
            return bool(self._manage("removeChildDependency", job=job_id))
        except NodeError as error:
            # The empty key of a job without a parent; in a Cluster it is in another slot.
            if not re.search("Missing key for parent|non local key", str(error)):
                raise
            return False

    async def retry(self, job_id: str, place: str, reset: bool = False) -> bool:
        """Run a finished job again; return whether the counts of its attempts were reset.

        5.x cannot reset them.
        """
        opts = {"resetAttemptsMade": reset, "resetAttemptsStarted": reset}
        self._manage("retry", place, opts, job=job_id)
        return reset and not self._client.is_5x

    async def retry_all(self, place: str, booked: bool) -> bool:
        """Run every finished job again; return whether that changed the ledger: not in 5.x."""
        self._manage("retryJobs", {"state": place})
        return not self._client.is_5x

    async def pause(self, paused: bool, moves_list: bool) -> bool:
        """Pause or resume the queue; return whether that moves a list: only in 5.x."""
        self._manage("pause" if paused else "resume")
        return self._client.is_5x

    async def obliterate(self) -> bool:
        """Pause the queue, and delete it with all its jobs; return whether a pause moves a list."""
        self._manage("obliterate", {"force": True})
        return self._client.is_5x

    async def delete_keys(self) -> None:
        """Delete all keys of the queue."""
        self._client.perform("delete_keys", queue=self._name)

    async def remove_orphans(self) -> bool:
        """Delete the keys of jobs that are in no list; return False in 5.x, which cannot do it."""
        if not self._client.is_5x:
            self._manage("removeOrphanedJobs")
        return not self._client.is_5x

    async def add(self, job_id: str) -> None:
        """Add a job that belongs to no group."""
        opts = {"jobId": job_id, "removeOnComplete": False, "removeOnFail": False}
        self._manage("add", "foreign", {}, opts)

    def _manage(self, method: str, *args: Any, job: str | None = None) -> Any:
        """Call a method of the Queue, or of one of its jobs."""
        return self._client.perform("manage", queue=self._name, job=job, method=method, args=args)
