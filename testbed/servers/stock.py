"""Stock BullMQ clients outside the process of the test, which scripts their behaviour.

Node clients share one process for each version, because most of their cost is its start. A client
that a test kills or freezes must have a process of its own: `own=True`.

A client reads and writes one JSON object a line. It reads orders:
  connect url prefix · work queue behaviour settings · add queue name data opts
  manage queue job method args · tree queue id · board queues settings request ·
  listen queue types · await_end queue job · release name · close
and writes reports, to which the test adds the time `at` which it read them:
  working · added · managed · tree · answered · listening · event · awaiting · awaited · started ·
  back · completed · failed · stalled · error · refused · closed

The name of a queue may contain a colon, as that of an undo queue does. BullMQ for Node rejects such
a name, so the Node client moves the first part of the name into the prefix.

The name of a job selects its behaviour: `returns`, `fails`, `fails_for_good`, `goes_back`, `hangs`
or `takes`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
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


def goes_back() -> Behaviour:
    """Return to the queue in the first run: WaitingError in Node, DelayedError in Python."""
    return {"goes_back": True}


def waits_for_child(queue: str) -> Behaviour:
    """Add a child job to a queue, and wait for it as its parent; only in Node."""
    return {"child": queue}


def hangs(then: Behaviour | None = None) -> Behaviour:
    """Stay active until released, then behave as `then`."""
    return {**(then or {}), "hang": True}


def takes(milliseconds: int, then: Behaviour | None = None) -> Behaviour:
    """Stay active for this time, then behave as `then`."""
    return {**(then or {}), "takes": milliseconds}


class Host:
    """A process with an unmodified BullMQ; each connection to its socket is a client."""

    def __init__(self, flavour: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="stock-")
        folder = Path(self._folder.name)
        self._socket = folder / "socket"
        if flavour == "python":
            command = [sys.executable, str(CLIENTS / "client.py")]
        else:
            command = [str(node()), str(CLIENTS / "client.mjs"), flavour]
            (folder / "bullmq").symlink_to(CLIENTS / "node_modules" / flavour)
        # It ends when its input does.
        self.process = subprocess.Popen(
            leashed([*command, str(self._socket)]),
            cwd=CLIENTS,
            stdin=subprocess.PIPE,
            # Node seeks packages there, too: bull-board requires "bullmq", not one of its versions.
            env={**os.environ, "NODE_PATH": str(folder)},
        )

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the process as soon as it listens."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    return await asyncio.open_unix_connection(self._socket, limit=LINE_LIMIT)
                except (FileNotFoundError, ConnectionRefusedError):
                    if self.process.poll() is not None:
                        raise RuntimeError("a stock client ended before it listened") from None
                    await asyncio.sleep(0.01)

    def kill(self) -> None:
        """Kill the process, as a crash does."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None, "started with a pipe"
        self.process.stdin.close()
        self._folder.cleanup()


# The processes that clients of this process share, by flavour.
_shared: dict[str, Host] = {}


def shared_host(flavour: str) -> Host:
    """Return the process that clients share; start it if there is none or if it has ended."""
    host = _shared.get(flavour)
    if host is None or host.process.poll() is not None:
        host = _shared[flavour] = Host(flavour)
    return host


class StockClient:
    """A stock producer, a stock worker, or both."""

    def __init__(
        self,
        flavour: str,
        own: Host | None,
        lines: asyncio.StreamReader,
        output: asyncio.StreamWriter,
    ) -> None:
        self.flavour = flavour
        self.reports: list[Report] = []
        self._own = own
        self._lines = lines
        self._output = output
        self._heard = asyncio.Condition()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, flavour: str, url: str, prefix: str, own: bool = False) -> Self:
        """Start a client of a flavour that connects to a Redis."""
        # Python's BullMQ cannot abandon its active jobs, so its clients share no process.
        host = Host(flavour) if own or flavour == "python" else None
        client = cls(flavour, host, *await (host or shared_host(flavour)).connect())
        await client.order("connect", url=url, prefix=prefix)
        return client

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

    async def tree(self, queue: str, job: str) -> Any:
        """Return what FlowProducer.getFlow finds: a job, and its children; only in Node."""
        already = len(self.reports)
        await self.order("tree", queue=queue, id=job)
        return (await self.heard("tree", after=already, id=job)).get("tree")

    async def board(
        self,
        queues: Sequence[str],
        method: str,
        route: str,
        read_only: bool = False,
        **request: Any,
    ) -> Report:
        """Send a request to a bull-board that shows these queues; only in Node.

        The answer has its `status` and its `body`.
        """
        already = len(self.reports)
        asked = {"method": method, "route": route, **request}
        await self.order(
            "board", queues=queues, settings={"readOnlyMode": read_only}, request=asked
        )
        return await self.heard("answered", after=already)

    async def listen(self, queue: str, *types: str) -> None:
        """Report the events of these types that QueueEvents emits, from the first of the stream."""
        await self.order("listen", queue=queue, types=types)
        await self.heard("listening", queue=queue)

    async def await_end(self, queue: str, job: str) -> None:
        """Report `awaited` when waitUntilFinished of a job returns or throws; only in Node."""
        await self.order("await_end", queue=queue, job=job)
        await self.heard("awaiting", id=job)

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
        self._own_host.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue a frozen process."""
        self._own_host.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill the process, as a crash does."""
        self._own_host.kill()
        await self._listener

    async def end(self) -> None:
        """End the client without waiting for its active jobs; nobody continues them."""
        if self._own:
            self._own.kill()
        elif self._output.can_write_eof() and not self._output.is_closing():
            self._output.write_eof()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._listener
        self._output.close()

    async def close(self) -> None:
        """Finish the active jobs and end, as `worker.close()` does."""
        await self.order("close")
        await self.heard("closed")
        await self._listener

    async def order(self, order: str, **fields: Any) -> None:
        """Send one order."""
        self._output.write(json.dumps({"order": order, **fields}).encode() + b"\n")
        await self._output.drain()

    @property
    def _own_host(self) -> Host:
        assert self._own is not None, "start the client with own=True"
        return self._own

    async def _listen(self) -> None:
        try:
            async for line in self._lines:
                if not line.endswith(b"\n"):
                    break  # killed in the middle of a line
                async with self._heard:
                    self.reports.append({"at": time.monotonic(), **json.loads(line)})
                    self._heard.notify_all()
        except ConnectionResetError:
            pass  # killed with orders unread
        async with self._heard:
            self._heard.notify_all()

    def _refusal(self) -> Report | None:
        return next((r for r in self.reports if r["event"] == "refused"), None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()


def _flat(report: Report) -> Report:
    """Return the fields of a report that can be items of a set."""
    return {key: value for key, value in report.items() if not isinstance(value, (dict, list))}
