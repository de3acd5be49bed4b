"""Stock BullMQ clients in processes of their own; a test scripts their behaviour.

A client reads and writes one JSON object a line. It reads orders:
  connect url prefix · work queue behaviour settings · add queue name data opts
  manage queue job method args · listen queue types · release name · close
and writes reports:
  working · added · managed · listening · event · started · completed · failed · stalled · error ·
  refused · closed

The name of a queue may contain a colon, as that of an undo queue does. BullMQ for Node rejects such
a name, so the Node client moves the first part of the name into the prefix.

The name of a job selects its behaviour: `returns`, `fails`, `fails_for_good` or `hangs`. `kill`,
`freeze` and `thaw` act on the whole process, for example until the locks of its jobs expire.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any, Self

from testbed import TESTBED
from testbed.build.toolchain import node
from testbed.servers.processes import leashed
from testbed.support.waiting import PATIENCE_SECONDS

CLIENTS = TESTBED / "workers"
FLAVOURS = ("bullmq5", "bullmq6", "python")
# A report can contain all data of a job, which exceeds asyncio's limit of 64 KB a line.
LINE_LIMIT = 64 * 1024 * 1024

Behaviour = dict[str, Any]
Report = dict[str, Any]


def returns(value: Any) -> Behaviour:
    """Complete with this value."""
    return {"return": value}


def fails(times: int, reason: str = "scripted failure", then: Any = None) -> Behaviour:
    """Fail the first attempts, then complete."""
    return {"fail": times, "reason": reason, "return": then}


def fails_for_good(reason: str = "scripted refusal") -> Behaviour:
    """Fail at once with UnrecoverableError, whatever attempts remain."""
    return {"unrecoverable": True, "reason": reason}


def hangs(then: Behaviour | None = None) -> Behaviour:
    """Stay active until released, then behave as `then`."""
    return {**(then or {}), "hang": True}


class StockClient:
    """One process with an unmodified BullMQ: a producer, a worker, or both."""

    def __init__(self, flavour: str, process: asyncio.subprocess.Process) -> None:
        self.flavour = flavour
        self.reports: list[Report] = []
        self._process = process
        self._heard = asyncio.Condition()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, flavour: str, url: str, prefix: str) -> Self:
        """Start a client of a flavour that connects to a Redis."""
        if flavour == "python":
            command = [sys.executable, str(CLIENTS / "client.py")]
        else:
            command = [str(node()), str(CLIENTS / "client.mjs"), flavour]
        process = await asyncio.create_subprocess_exec(
            *leashed(command),
            cwd=CLIENTS,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
        )
        client = cls(flavour, process)
        await client.order("connect", url=url, prefix=prefix)
        return client

    @property
    def pid(self) -> int:
        return self._process.pid

    async def work(
        self, queue: str, behaviour: Mapping[str, Behaviour] | None = None, **settings: Any
    ) -> None:
        """Run the jobs of a queue; settings are BullMQ's own, for example lockDuration."""
        already = len(self.reports)
        await self.order("work", queue=queue, behaviour=dict(behaviour or {}), settings=settings)
        await self.heard("working", after=already, queue=queue)

    async def add(self, queue: str, name: str, data: Any = None, **opts: Any) -> str:
        """Add a job as the stock producer does and return its id."""
        already = len(self.reports)
        await self.order("add", queue=queue, name=name, data=data or {}, opts=opts)
        added = await self.heard("added", after=already, name=name)
        return str(added["id"])

    async def manage(self, queue: str, method: str, *args: Any, job: str | None = None) -> Any:
        """Call a method of the stock Queue, or of one of its jobs, and return the result."""
        already = len(self.reports)
        await self.order("manage", queue=queue, job=job, method=method, args=args)
        return (await self.heard("managed", after=already, method=method))["result"]

    async def listen(self, queue: str, *types: str) -> None:
        """Report the events of these types that QueueEvents emits, from the first of the stream."""
        await self.order("listen", queue=queue, types=types)
        await self.heard("listening", queue=queue)

    async def release(self, name: str) -> None:
        """Release the hanging jobs of this name, those of now and later ones."""
        await self.order("release", name=name)

    async def heard(self, event: str, after: int = 0, **fields: Any) -> Report:
        """Wait for the first report of this kind with these fields, past reports included."""

        def match() -> Report | None:
            wanted = {"event": event, **fields}.items()
            return next((r for r in self.reports[after:] if wanted <= _flat(r).items()), None)

        def answer() -> bool:
            return match() is not None or self._listener.done() or self._refusal() is not None

        async with asyncio.timeout(PATIENCE_SECONDS), self._heard:
            await self._heard.wait_for(answer)
        if found := match():
            return found
        raise RuntimeError(f"{self.flavour} never reported {event} {fields}, but {self.reports}")

    def count(self, event: str, **fields: Any) -> int:
        """Count the reports of this kind with these fields so far."""
        wanted = {"event": event, **fields}.items()
        return sum(wanted <= _flat(report).items() for report in self.reports)

    def freeze(self) -> None:
        """Stop the process, even in the middle of a job, so that its locks expire."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue a frozen process."""
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill the process, as a crash does."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._listener

    async def close(self) -> None:
        """Finish the active jobs and end, as `worker.close()` does."""
        await self.order("close")
        await self.heard("closed")
        await self._process.wait()
        await self._listener

    async def order(self, order: str, **fields: Any) -> None:
        """Send one order."""
        stdin = self._process.stdin
        assert stdin is not None, "started with a pipe"
        stdin.write(json.dumps({"order": order, **fields}).encode() + b"\n")
        await stdin.drain()

    async def _listen(self) -> None:
        assert self._process.stdout is not None, "started with a pipe"
        async for line in self._process.stdout:
            if not line.endswith(b"\n"):
                break  # killed in the middle of a line
            async with self._heard:
                self.reports.append(json.loads(line))
                self._heard.notify_all()
        async with self._heard:
            self._heard.notify_all()

    def _refusal(self) -> Report | None:
        return next((r for r in self.reports if r["event"] == "refused"), None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()


def _flat(report: Report) -> Report:
    """Return the fields of a report that can be items of a set."""
    return {key: value for key, value in report.items() if not isinstance(value, (dict, list))}
