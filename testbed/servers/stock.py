"""Stock BullMQ clients in processes of their own, their behaviour scripted by a test.

A client speaks one JSON object a line. It takes orders:
  connect url prefix · work queue behaviour settings · add queue name data opts
  manage queue job method args · listen queue types · release name · close
and reports:
  working · added · managed · listening · event · started · completed · failed · stalled · error ·
  refused · closed

A queue's name may hold a colon, as that of an undo queue does. Only Node refuses it, and gets there
by a longer prefix.

How a job goes is scripted by its name, with `returns`, `fails`, `fails_for_good` and `hangs`. To be
killed or stopped past its lock is done to the whole process, with `kill`, `freeze` and `thaw`.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.processes import leashed
from testbed.toolchain import node

CLIENTS = Path(__file__).resolve().parent / "workers"
FLAVOURS = ("bullmq5", "bullmq6", "python")
PATIENCE_SECONDS = 120
# A report may carry a job's whole data; asyncio's own limit of 64 KB a line is too small for that.
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
    """Stay active until released, then go on as told."""
    return {**(then or {}), "hang": True}


class StockClient:
    """One process with an unmodified BullMQ in it: a producer, a worker, or both."""

    def __init__(self, flavour: str, process: asyncio.subprocess.Process) -> None:
        self.flavour = flavour
        self.reports: list[Report] = []
        self._process = process
        self._heard = asyncio.Condition()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, flavour: str, url: str, prefix: str) -> Self:
        """Start a client of this flavour that speaks to this Redis."""
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
        """Run the jobs of a queue; settings are BullMQ's own, lockDuration for one."""
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
        """Call a method of the stock Queue, or of one of its jobs, and return what it returns."""
        already = len(self.reports)
        await self.order("manage", queue=queue, job=job, method=method, args=args)
        return (await self.heard("managed", after=already, method=method))["result"]

    async def listen(self, queue: str, *types: str) -> None:
        """Report the events of these types, from the first there is, as QueueEvents tells them."""
        await self.order("listen", queue=queue, types=types)
        await self.heard("listening", queue=queue)

    async def release(self, name: str) -> None:
        """Let the jobs of this name that hang go on, now and later."""
        await self.order("release", name=name)

    async def heard(self, event: str, after: int = 0, **fields: Any) -> Report:
        """Wait for the first report of this kind with these fields, past ones included."""

        def match() -> Report | None:
            wanted = {"event": event, **fields}.items()
            return next((r for r in self.reports[after:] if wanted <= _flat(r).items()), None)

        def answer() -> bool:
            return match() is not None or self._listener.done() or self._refusal() is not None

        async with asyncio.timeout(PATIENCE_SECONDS), self._heard:
            await self._heard.wait_for(answer)
        if found := match():
            return found
        raise RuntimeError(f"{self.flavour} never said {event} {fields}; it said {self.reports}")

    def count(self, event: str, **fields: Any) -> int:
        """Count the reports of this kind with these fields so far."""
        wanted = {"event": event, **fields}.items()
        return sum(wanted <= _flat(report).items() for report in self.reports)

    def freeze(self) -> None:
        """Stop the process as it is, in the middle of a job, so that its locks expire."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on, unaware of the time it lost."""
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End the process as a crash would."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._listener

    async def close(self) -> None:
        """Finish the jobs at hand and leave, as `worker.close()` does."""
        await self.order("close")
        await self.heard("closed")
        await self._process.wait()
        await self._listener

    async def order(self, order: str, **fields: Any) -> None:
        """Send one order as it is."""
        stdin = self._process.stdin
        assert stdin is not None, "started with a pipe"
        stdin.write(json.dumps({"order": order, **fields}).encode() + b"\n")
        await stdin.drain()

    async def _listen(self) -> None:
        assert self._process.stdout is not None, "started with a pipe"
        async for line in self._process.stdout:
            if not line.endswith(b"\n"):
                break  # killed in the middle of a word
            async with self._heard:
                self.reports.append(json.loads(line))
                self._heard.notify_all()
        async with self._heard:
            self._heard.notify_all()

    def _refusal(self) -> Report | None:
        return next((r for r in self.reports if r["event"] == "refused"), None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.kill()


def _flat(report: Report) -> Report:
    """Leave out what cannot be compared as a set item."""
    return {key: value for key, value in report.items() if not isinstance(value, (dict, list))}
