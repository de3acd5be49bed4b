"""A stock BullMQ client from PyPI that a test controls: one JSON object a line, in and out.

Usage: python client.py SOCKET. It serves one connection and then ends. Orders and reports: see
testbed/servers/stock.py.
"""

import asyncio
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote

from bullmq import DelayedError, Job, Queue, QueueEvents, UnrecoverableError, Worker
from redis import exceptions
from redis.asyncio import RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

# An order can contain all data of a job, which exceeds asyncio's limit of 64 KB a line.
LINE_LIMIT = 64 * 1024 * 1024
URL = re.compile(
    r"redis(?P<tls>s)?(\+(?P<kind>sentinel|cluster))?://((?P<user>[^:@]*)(:(?P<password>[^@]*))?@)?"
    r"(?P<hosts>[^/?]*)(?P<path>[^?]*)\??(?P<query>.*)"
)


def to_json(job: Job) -> dict[str, Any]:
    fields = ("id", "name", "data", "opts", "timestamp", "delay", "priority", "parentKey")
    return {field: getattr(job, field) for field in fields}


def connection_of(url: str) -> Any:
    """Return the option `connection`: a client for Sentinel and Cluster, else a dictionary."""
    found = URL.fullmatch(url)
    assert found is not None, "the tests give a URL"
    given = dict(parse_qsl(found["query"]))
    tls = {name: value for name, value in given.items() if name.startswith("ssl_")}
    options: dict[str, Any] = {
        "username": unquote(found["user"] or "") or None,
        "password": unquote(found["password"] or "") or None,
        # By default, redis-py 8 ends a read after 5 s, as long as the worker blocks for a job.
        # The worker then backs off, and misses jobs meanwhile.
        "socket_timeout": None,
        **({"ssl": True, **tls} if found["tls"] else {}),
    }
    nodes = [
        (host, int(port)) for host, port in (each.split(":") for each in found["hosts"].split(","))
    ]
    if not found["kind"]:
        (host, port), database = nodes[0], int(found["path"].strip("/") or 0)
        return {"host": host, "port": port, "db": database, **options}
    patience = Retry(ExponentialBackoff(cap=1, base=0.1), 100)
    options |= {"retry": patience, "decode_responses": True}
    if found["kind"] == "cluster":
        return RedisCluster(startup_nodes=[ClusterNode(*node) for node in nodes], **options)
    service, _, name = found["path"].strip("/").partition("/")
    login = {name: given.get(f"sentinel_{name}") for name in ("username", "password")}
    asking = {**options, **login, "socket_timeout": 1, "retry": None}
    sentinel = Sentinel(nodes, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    names = ("BusyLoadingError", "ConnectionError", "ReadOnlyError", "TimeoutError")
    errors = [getattr(exceptions, name) for name in names]
    return sentinel.master_for(service, db=int(name or 0), retry_on_error=errors, **options)


class Client:
    def __init__(self, output: asyncio.StreamWriter) -> None:
        self.output = output
        self.url = self.prefix = ""
        self.workers: list[Worker] = []
        self.listeners: list[QueueEvents] = []
        self.behaviours: dict[str, dict[str, Any]] = {}
        self.backs: set[str] = set()
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def report(self, event: str, **fields: Any) -> None:
        self.output.write(json.dumps({"event": event, **fields}, default=to_json).encode() + b"\n")

    async def run(self, job: Any, token: str) -> Any:
        behaviour = self.behaviours.get(job.name, {})
        attempt = job.attemptsMade
        self.report(
            "started", id=job.id, name=job.name, data=job.data, opts=job.opts, attempt=attempt
        )
        if behaviour.get("hang"):
            await self.gates[job.name].wait()
        await asyncio.sleep(behaviour.get("takes", 0) / 1000)
        if behaviour.get("goes_back") and job.id not in self.backs:
            self.backs.add(job.id)
            await job.moveToDelayed(int(time.time() * 1000), token)
            self.report("back", id=job.id, name=job.name)
            raise DelayedError
        if behaviour.get("unrecoverable"):
            raise UnrecoverableError(behaviour["reason"])
        if attempt < behaviour.get("fail", 0):
            raise RuntimeError(behaviour["reason"])
        return behaviour.get("return")

    async def connect(self, url: str, prefix: str) -> None:
        self.url, self.prefix = url, prefix

    @property
    def options(self) -> dict[str, Any]:
        """Return options for one Queue or Worker, which closes its connection."""
        return {"connection": connection_of(self.url), "prefix": self.prefix}

    async def work(self, queue: str, behaviour: dict[str, Any], settings: dict[str, Any]) -> None:
        self.behaviours.update(behaviour)
        worker = Worker(queue, self.run, {**self.options, **settings})
        worker.on("completed", lambda job, _: self.report("completed", id=job.id, name=job.name))
        worker.on(
            "failed",
            lambda job, error: self.report("failed", id=job.id, name=job.name, reason=str(error)),
        )
        worker.on("stalled", lambda job_id: self.report("stalled", id=job_id))
        worker.on("error", lambda error, _job=None: self.report("error", reason=str(error)))
        self.workers.append(worker)
        self.report("working", queue=queue)

    async def add(self, queue: str, name: str, data: Any, opts: dict[str, Any]) -> None:
        producer = Queue(queue, self.options)
        job = await producer.add(name, data, opts)
        await producer.close()
        self.report("added", id=job.id, name=name)

    async def manage(self, queue: str, job: str | None, method: str, args: list[Any]) -> None:
        manager = Queue(queue, self.options)
        try:
            target = await manager.getJob(job) if job else manager
            self.report("managed", method=method, result=await getattr(target, method)(*args))
        finally:
            await manager.close()

    async def listen(self, queue: str, types: list[str]) -> None:
        listener = QueueEvents(queue, {**self.options, "lastEventId": "0"})
        for kind in types:
            listener.on(kind, partial(self.tell, queue, kind))
        listener.on("error", lambda error: self.report("error", reason=str(error)))
        self.listeners.append(listener)
        self.report("listening", queue=queue)

    def tell(self, queue: str, kind: str, fields: dict[str, Any], entry_id: str) -> None:
        self.report("event", queue=queue, type=kind, id=entry_id, fields=fields)

    async def release(self, name: str) -> None:
        self.gates[name].set()

    async def close(self) -> None:
        for opened in (*self.workers, *self.listeners):
            await opened.close()
        self.report("closed")


async def obey(lines: asyncio.StreamReader, output: asyncio.StreamWriter) -> None:
    client = Client(output)
    orders: dict[str, Callable[..., Awaitable[None]]] = {
        order: getattr(client, order)
        for order in ("connect", "work", "add", "manage", "listen", "release", "close")
    }
    # A read returns nothing when the test has ended the client.
    while line := await lines.readline():
        fields = json.loads(line)
        order = fields.pop("order")
        try:
            await orders[order](**fields)
        except Exception as error:
            client.report("refused", order=order, reason=str(error))
        if order == "close":
            await output.drain()
            return


async def serve(path: str) -> None:
    ended = asyncio.Event()

    async def connected(lines: asyncio.StreamReader, output: asyncio.StreamWriter) -> None:
        try:
            await obey(lines, output)
        finally:
            ended.set()

    await asyncio.start_unix_server(connected, path, limit=LINE_LIMIT)
    await ended.wait()


asyncio.run(serve(sys.argv[1]))
