"""The parts of the demo: servers, the operator with its own RBAC, and the example's workers."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

from redis import Redis

from testbed.servers.apiserver import ApiServer
from testbed.servers.operator import start_operator
from testbed.servers.processes import Server
from testbed.servers.redis import RedisServer
from testbed.support.errors import Unavailable
from testbed.support.examples import book_keys, node_worker, python_worker
from testbed.support.resources import install_crds

PREFIX = "bull"
# The queues of each worker.
QUEUES = {"worker.mjs": ("payments",), "worker.py": ("inventory", "shipping")}
# The queues of their undos.
UNDO_QUEUES = {"payments": "refunds", "inventory": "releases", "shipping": "cancellations"}
# How long a job takes: long enough for a person to follow.
WORK_MS = "600"
LABEL_WIDTH = 60

Part = TypeVar("Part")
Write = Callable[..., None]


class Scene(Protocol):
    """The parts as the demo sees them: processes of this machine, or pods of a cluster."""

    @property
    def folder(self) -> Path:
        """Return the folder of the logs and other files."""

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig of the admin."""

    @property
    def kubectl(self) -> list[str]:
        """Return the command that runs kubectl as the admin."""

    def logs(self) -> Sequence[tuple[str, Path]]:
        """Return the name and the log of each worker; more workers may come later."""

    def notice(self, pod: Mapping[str, Any]) -> None:
        """Take note of a new or changed pod."""

    def must_run(self) -> None:
        """Raise Unavailable if a part has ended."""

    def books(self) -> dict[str, dict[str, str]]:
        """Return the content of the shop's books."""


@dataclass(frozen=True)
class Parts:
    """All parts as processes of this machine."""

    folder: Path
    api: ApiServer
    redis: RedisServer
    operator: Server
    workers: list[Server]

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig of the admin."""
        return self.api.admin

    @property
    def kubectl(self) -> list[str]:
        """Return the command that runs kubectl as the admin."""
        return [str(self.api.kubectl_path), "--kubeconfig", str(self.kubeconfig)]

    def logs(self) -> Sequence[tuple[str, Path]]:
        """Return the name and the log of each worker."""
        return [(worker.name, worker.log) for worker in self.workers]

    def notice(self, pod: Mapping[str, Any]) -> None:
        """Do nothing: no part is a pod."""

    def must_run(self) -> None:
        """Raise Unavailable if one of the processes has ended."""
        must_run([*self.api.servers, self.redis.server, self.operator, *self.workers])

    def books(self) -> dict[str, dict[str, str]]:
        """Return the content of the shop's books."""
        with Redis.from_url(self.redis.url, decode_responses=True) as redis:
            return {book: redis.hgetall(key) for book, key in book_keys(PREFIX).items()}


@contextmanager
def started(folder: Path, write: Write) -> Iterator[Parts]:
    """Start the parts one after the other, and print how long each took."""
    timed = partial(timed_start, write)
    with ExitStack() as undo:
        api = timed("etcd and kube-apiserver", lambda: ApiServer(folder))
        # Killed instead of stopped: it is faster, and the data is thrown away.
        undo.callback(api.crash)
        timed("the kinds JobGroup and WorkerPool", lambda: install_crds(api))
        redis = timed("Redis", lambda: RedisServer(folder))
        undo.callback(redis.kill)
        operator = timed(
            "the operator, under its own RBAC",
            lambda: start_operator(folder, api.operator, redis.url, PREFIX).server,
        )
        undo.callback(operator.kill)
        workers = []
        for command in (node_worker(folder), python_worker()):
            start = partial(_start_worker, folder, command, redis.url)
            workers.append(timed(_label(command), start))
            undo.callback(workers[-1].kill)
        offer_kubectl(folder, api.kubectl_path)
        yield Parts(folder, api, redis, operator, workers)


def must_run(servers: Iterable[Server]) -> None:
    """Raise Unavailable if one of the servers has ended."""
    for server in servers:
        if server.code is not None:
            raise Unavailable(f"{server.name} ended with code {server.code}: {server.log_tail()}")


class _Messages(StringIO):
    """What a part prints while it starts: the text gets lines of its own below an open line."""

    def __init__(self, output: TextIO) -> None:
        super().__init__()
        self.is_empty = True
        self._output = output

    def write(self, text: str) -> int:
        written = self._output.write(f"\n{text}" if self.is_empty else text)
        self.is_empty = False
        return written

    def flush(self) -> None:
        self._output.flush()


def timed_start(write: Write, label: str, start: Callable[[], Part]) -> Part:
    """Start a part, and print its name and how long it took."""
    line = f"  {label:<{LABEL_WIDTH}}"
    write(line, end="")
    begun = time.monotonic()
    messages = _Messages(sys.stdout)
    with redirect_stdout(messages):
        part = start()
    if not messages.is_empty:
        write(line, end="")
    write(f"{time.monotonic() - begun:5.1f} s")
    return part


def offer_kubectl(folder: Path, kubectl: Path) -> None:
    """Put kubectl into the folder that the demo tells the user to add to PATH."""
    (folder / "bin").mkdir()
    (folder / "bin" / "kubectl").symlink_to(kubectl)


def _label(command: Sequence[str]) -> str:
    name = Path(command[-1]).name
    return f"{name}, a stock BullMQ worker on {' and '.join(QUEUES[name])}"


def _start_worker(folder: Path, command: Sequence[str], redis_url: str) -> Server:
    name = Path(command[-1]).name
    log = folder / f"{name}.log"
    queues = [each for queue in QUEUES[name] for each in (queue, UNDO_QUEUES[queue])]
    env = {
        "WORK_MS": WORK_MS,
        **os.environ,
        "REDIS_URL": redis_url,
        "BULLMQ_PREFIX": PREFIX,
        "QUEUES": ",".join(queues),
    }
    return Server(name, command, log, lambda _: "working" in log.read_text(), env)
