"""What the API server and the workers tell, as it comes, told on to whoever looks at the screen."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.demo import story
from testbed.demo.parts import QUEUES, Scene
from testbed.processes import leashed

GROUPS = "/apis/jobgroups.dev/v1alpha1/jobgroups"
EVENTS = "/api/v1/events"
# What Events are told of.
OURS = ("JobGroup", "WorkerPool")
# A worker says what it did just before or just after the API server knows of it: waiting so long
# puts a worker's words first.
GRACE_SECONDS = 0.15
# How often workers' logs are looked at when the API server tells nothing.
LOOK_SECONDS = 0.1
LINE_LIMIT = 64 * 1024 * 1024

Body = dict[str, Any]


class Watcher:
    """Tells what happens to all JobGroups, and remembers the last of each."""

    def __init__(self, parts: Scene, write: Callable[[str], None]) -> None:
        self.groups: dict[str, Body] = {}
        self.events: dict[str, dict[str, str]] = {}
        # Whoever holds it has the screen to himself.
        self.silence = asyncio.Lock()
        self._parts = parts
        self._write = write
        self._news: asyncio.Queue[tuple[str, Body]] = asyncio.Queue()
        self._logs = {path: _Tail(name, path, old=True) for name, path in parts.logs()}
        self.pods: dict[str, Body] = {}
        self._began = time.monotonic()

    def begin(self) -> None:
        """Count the seconds from now on."""
        self._began = time.monotonic()

    def look(self, name: str) -> tuple[Body, list[str]]:
        """Return the status of a JobGroup, and why there were Events about it."""
        for uid, body in self.groups.items():
            if body["metadata"]["name"] == name:
                return body.get("status") or {}, list(self.events.get(uid, {}).values())
        return {}, []

    async def run(self) -> None:
        """Watch and tell until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for path in (GROUPS, EVENTS, *self._parts.watched):
                tasks.create_task(self._watch(path))
            tasks.create_task(self._tell())

    async def _watch(self, path: str) -> None:
        """Follow a resource; a server ends a watch now and then, and the next one repeats all."""
        command = [*self._parts.kubectl, "get", "--raw", f"{path}?watch=true"]
        while True:
            process = await asyncio.create_subprocess_exec(
                *leashed(command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=LINE_LIMIT,
                start_new_session=True,
            )
            assert process.stdout is not None, "started with a pipe"
            try:
                async for line in process.stdout:
                    change = json.loads(line)
                    self._news.put_nowait((change["type"], change["object"]))
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            await asyncio.sleep(1)

    async def _tell(self) -> None:
        while True:
            heard = []
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    heard.append(await self._news.get())
                await asyncio.sleep(GRACE_SECONDS)
            async with self.silence:
                self._tell_of_workers()
                while not self._news.empty():
                    heard.append(self._news.get_nowait())
                for kind, body in heard:
                    self._tell_of_change(kind, body)

    def _tell_of_workers(self) -> None:
        for name, path in self._parts.logs():
            log = self._logs.setdefault(path, _Tail(name, path))
            for line in log.new_lines():
                self._say(story.of_worker(log.name, line))

    def _tell_of_change(self, kind: str, body: Body) -> None:
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            tell = {"Event": self._tell_of_event, "Pod": self._tell_of_pod}
            tell.get(body["kind"], self._tell_of_group)(kind, body)

    def _tell_of_group(self, kind: str, body: Body) -> None:
        uid = body["metadata"]["uid"]
        if kind == "DELETED":
            self.groups.pop(uid, None)
            self._say(story.of_deletion(body))
            return
        self._say(*story.of_group(self.groups.get(uid), body))
        if uid not in self.groups:
            queues = [queue for each in QUEUES.values() for queue in each]
            self._say(*story.of_queues(body, queues))
        self.groups[uid] = body

    def _tell_of_event(self, kind: str, body: Body) -> None:
        about, name = body["involvedObject"], body["metadata"]["name"]
        told = self.events.setdefault(about.get("uid", ""), {})
        if kind != "DELETED" and about.get("kind") in OURS and name not in told:
            told[name] = body["reason"]
            self._say(story.of_event(body))

    def _tell_of_pod(self, kind: str, body: Body) -> None:
        name = body["metadata"]["name"]
        before = self.pods.pop(name, None)
        if kind == "DELETED":
            self._say(*story.of_pod(body, None))
            return
        self.pods[name] = body
        self._parts.heed(body)
        self._say(*story.of_pod(before, body))

    def _say(self, *lines: str) -> None:
        """Write lines, the first of them with its time."""
        when = f"{time.monotonic() - self._began:6.1f} s"
        for line in lines:
            self._write(f"{when:8}  {line}")
            when = ""


class _Tail:
    """The whole lines that were added to a file since it was last looked at."""

    def __init__(self, name: str, path: Path, old: bool = False) -> None:
        self.name = name
        self._path = path
        self._place = path.stat().st_size if old else 0

    def new_lines(self) -> list[str]:
        with self._path.open("rb") as file:
            file.seek(self._place)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._place += len(whole) + len(newline)
        return whole.decode(errors="replace").splitlines()
