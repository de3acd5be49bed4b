"""The real parts of the demo: servers, the operator under its own RBAC, the example's workers."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from redis import Redis

from testbed.apiserver import ApiServer
from testbed.errors import Unavailable
from testbed.examples import book_keys, node_worker, python_worker
from testbed.operators import start_operator
from testbed.processes import Server
from testbed.redis_server import RedisServer
from testbed.resources import install_crds

PREFIX = "bull"
# Who works on what.
QUEUES = {"worker.mjs": ("payments",), "worker.py": ("inventory", "shipping")}
# How long a job takes: long enough to be seen.
WORK_MS = "600"
LABEL_WIDTH = 60

Part = TypeVar("Part")
Write = Callable[..., None]


class Scene(Protocol):
    """All that runs, wherever it does."""

    @property
    def watched(self) -> Sequence[str]:
        """Return what is watched besides JobGroups and Events."""

    @property
    def folder(self) -> Path:
        """Return where the files are."""

    @property
    def kubectl(self) -> list[str]:
        """Return how to run kubectl as the admin."""

    def logs(self) -> Sequence[tuple[str, Path]]:
        """Return the workers' names and what they say; there may be more of them later."""

    def heed(self, pod: Mapping[str, Any]) -> None:
        """Hear what became of a pod."""

    def must_run(self) -> None:
        """Refuse to go on when something that must run does not."""

    def books(self) -> dict[str, dict[str, str]]:
        """Return what the shop has in its books."""


@dataclass(frozen=True)
class Parts:
    """All of it as processes of this machine."""

    folder: Path
    api: ApiServer
    redis: RedisServer
    operator: Server
    workers: list[Server]
    watched: Sequence[str] = ()

    @property
    def kubectl(self) -> list[str]:
        """Return how to run kubectl as the admin."""
        return [str(self.api.kubectl_path), "--kubeconfig", str(self.api.admin)]

    def logs(self) -> Sequence[tuple[str, Path]]:
        """Return the workers' names and what they say."""
        return [(worker.name, worker.log) for worker in self.workers]

    def heed(self, pod: Mapping[str, Any]) -> None:
        """Hear of none: nothing here is a pod."""

    def must_run(self) -> None:
        """Refuse to go on without one of the processes."""
        must_run([*self.api.servers, self.redis.server, self.operator, *self.workers])

    def books(self) -> dict[str, dict[str, str]]:
        """Return what the shop has in its books."""
        with Redis.from_url(self.redis.url, decode_responses=True) as redis:
            return {book: redis.hgetall(key) for book, key in book_keys(PREFIX).items()}


@contextmanager
def started(folder: Path, write: Write) -> Iterator[Parts]:
    """Start the parts one after the other, and say so."""
    timed = partial(tell_time, write)
    with ExitStack() as undo:
        api = timed("etcd and kube-apiserver", lambda: ApiServer(folder))
        # Nothing here is worth a farewell: all data is thrown away.
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
    """Refuse to go on without one of them."""
    for server in servers:
        if server.code is not None:
            raise Unavailable(f"{server.name} ended with code {server.code}: {server.last_words()}")


def tell_time(write: Write, label: str, start: Callable[[], Part]) -> Part:
    """Start a part, and say what it is and how long it took."""
    write(f"  {label:<{LABEL_WIDTH}}", end="")
    begun = time.monotonic()
    part = start()
    write(f"{time.monotonic() - begun:5.1f} s")
    return part


def offer_kubectl(folder: Path, kubectl: Path) -> None:
    """Put kubectl where the person who tries is told to look for it."""
    (folder / "bin").mkdir()
    (folder / "bin" / "kubectl").symlink_to(kubectl)


def _label(command: Sequence[str]) -> str:
    name = Path(command[-1]).name
    return f"{name}, a stock BullMQ worker on {' and '.join(QUEUES[name])}"


def _start_worker(folder: Path, command: Sequence[str], redis_url: str) -> Server:
    name = Path(command[-1]).name
    log = folder / f"{name}.log"
    queues = [f"{queue}{tail}" for queue in QUEUES[name] for tail in ("", ":compensation")]
    env = {
        "WORK_MS": WORK_MS,
        **os.environ,
        "REDIS_URL": redis_url,
        "BULLMQ_PREFIX": PREFIX,
        "QUEUES": ",".join(queues),
    }
    return Server(name, command, log, lambda _: "working" in log.read_text(), env)
