"""Prints what the API server and the workers report, as it happens."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubernetes.client import ApiException
from kubernetes.watch import Watch
from urllib3.exceptions import HTTPError

from jobgroup.resource.kinds import JOBGROUP, KINDS
from testbed.demo import story
from testbed.demo.parts import QUEUES, Scene
from testbed.support.user import User

# The kinds whose Events are printed.
OURS = tuple(kind.name for kind in KINDS)
# A worker logs what it did just before or just after the API server knows of it. Waiting this long
# prints the worker's line first.
GRACE_SECONDS = 0.15
# How often the logs of the workers are read when the API server reports no change.
LOOK_SECONDS = 0.1
# How long after a watch ended the next one begins.
PAUSE_SECONDS = 1.0
STOP_SECONDS = 2.0

Body = dict[str, Any]


class Watcher:
    """Prints the changes of all JobGroups, and keeps the newest state of each."""

    def __init__(self, parts: Scene, write: Callable[[str], None]) -> None:
        self.groups: dict[str, Body] = {}
        self.events: dict[str, dict[str, str]] = {}
        # The holder of this lock is the only one that prints.
        self.silence = asyncio.Lock()
        self._parts = parts
        self._write = write
        self._changes: asyncio.Queue[tuple[str, Body]] = asyncio.Queue()
        self._logs = {path: _Tail(name, path, old=True) for name, path in parts.logs()}
        self.pods: dict[str, Body] = {}
        self._began = time.monotonic()

    def begin(self) -> None:
        """Count the seconds from now on."""
        self._began = time.monotonic()

    def look(self, name: str) -> tuple[Body, list[str]]:
        """Return the status of a JobGroup, and the reasons of the Events about it."""
        for uid, body in self.groups.items():
            if body["metadata"]["name"] == name:
                return body.get("status") or {}, list(self.events.get(uid, {}).values())
        return {}, []

    async def run(self) -> None:
        """Watch and print until cancelled."""
        loop = asyncio.get_running_loop()

        def receive(change: str, body: Body) -> None:
            loop.call_soon_threadsafe(self._changes.put_nowait, (change, body))

        user = User.connect(self._parts.kubeconfig)
        everywhere = user.within("")
        places = {JOBGROUP.name: everywhere, "Event": everywhere, "Pod": user}
        followers = [_Follower(user, kind, receive) for kind, user in places.items()]
        try:
            await self._print_changes()
        finally:
            for follower in followers:
                follower.stop()
            user.close()

    async def _print_changes(self) -> None:
        while True:
            found = []
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    found.append(await self._changes.get())
                await asyncio.sleep(GRACE_SECONDS)
            async with self.silence:
                self._print_logs()
                while not self._changes.empty():
                    found.append(self._changes.get_nowait())
                for kind, body in found:
                    self._print_change(kind, body)

    def _print_logs(self) -> None:
        for name, path in self._parts.logs():
            log = self._logs.setdefault(path, _Tail(name, path))
            for line in log.new_lines():
                self._print(story.of_worker(log.name, line))

    def _print_change(self, kind: str, body: Body) -> None:
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            printers = {"Event": self._print_event, "Pod": self._print_pod}
            printers.get(body["kind"], self._print_group)(kind, body)

    def _print_group(self, kind: str, body: Body) -> None:
        uid = body["metadata"]["uid"]
        if kind == "DELETED":
            self.groups.pop(uid, None)
            self._print(story.of_deletion(body))
            return
        self._print(*story.of_group(self.groups.get(uid), body))
        if uid not in self.groups:
            queues = [queue for each in QUEUES.values() for queue in each]
            self._print(*story.of_queues(body, queues))
        self.groups[uid] = body

    def _print_event(self, kind: str, body: Body) -> None:
        about, name = body["involvedObject"], body["metadata"]["name"]
        known = self.events.setdefault(about.get("uid", ""), {})
        if kind != "DELETED" and about.get("kind") in OURS and name not in known:
            known[name] = body["reason"]
            self._print(story.of_event(body))

    def _print_pod(self, kind: str, body: Body) -> None:
        name = body["metadata"]["name"]
        before = self.pods.pop(name, None)
        if kind == "DELETED":
            self._print(*story.of_pod(body, None))
            return
        self.pods[name] = body
        self._parts.notice(body)
        self._print(*story.of_pod(before, body))

    def _print(self, *lines: str) -> None:
        """Write lines, the first of them with its time."""
        when = f"{time.monotonic() - self._began:6.1f} s"
        for line in lines:
            self._write(f"{when:8}  {line}")
            when = ""


class _Follower:
    """A thread that passes on the changes of a kind, until it is stopped.

    The API server ends a watch now and then; the next one begins with all objects again.
    """

    def __init__(self, user: User, kind: str, receive: Callable[[str, Body], None]) -> None:
        self._watcher = Watch()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, args=(user, kind, receive))
        # A demo that is killed does not wait for it.
        self._thread.daemon = True
        self._thread.start()

    def _follow(self, user: User, kind: str, receive: Callable[[str, Body], None]) -> None:
        while not self._stopped.is_set():
            with suppress(ApiException, HTTPError, OSError):
                for change, body in user.watch(kind, self._watcher):
                    if self._stopped.is_set():
                        return
                    receive(change, body)
            self._stopped.wait(PAUSE_SECONDS)

    def stop(self) -> None:
        """End the watch, and wait a moment for the thread."""
        self._stopped.set()
        self._watcher.stop()
        self._thread.join(STOP_SECONDS)


class _Tail:
    """The whole lines that were added to a file since it was last read."""

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
