"""A stock BullMQ client from PyPI that a test controls: one JSON object a line, in and out.

Orders and reports: see testbed/servers/stock.py.
"""

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from bullmq import Job, Queue, QueueEvents, UnrecoverableError, Worker


def report(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}, default=to_json), flush=True)


def to_json(job: Job) -> dict[str, Any]:
    return {"id": job.id, "name": job.name, "data": job.data, "opts": job.opts}


class Client:
    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.workers: list[Worker] = []
        self.listeners: list[QueueEvents] = []
        self.behaviours: dict[str, dict[str, Any]] = {}
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def run(self, job: Any, _token: str) -> Any:
        behaviour = self.behaviours.get(job.name, {})
        attempt = job.attemptsMade
        report("started", id=job.id, name=job.name, data=job.data, opts=job.opts, attempt=attempt)
        if behaviour.get("hang"):
            await self.gates[job.name].wait()
        if behaviour.get("unrecoverable"):
            raise UnrecoverableError(behaviour["reason"])
        if attempt < behaviour.get("fail", 0):
            raise RuntimeError(behaviour["reason"])
        return behaviour.get("return")

    async def connect(self, url: str, prefix: str) -> None:
        where = urlsplit(url)
        connection = {
            "host": where.hostname,
            "port": where.port or 6379,
            "db": int(where.path.strip("/") or 0),
            "username": unquote(where.username) if where.username else None,
            "password": unquote(where.password) if where.password else None,
            # By default, redis-py 8 ends a read after 5 s, as long as the worker blocks for a job.
            # The worker then backs off, and misses jobs meanwhile.
            "socket_timeout": None,
        }
        self.options = {"connection": connection, "prefix": prefix}

    async def work(self, queue: str, behaviour: dict[str, Any], settings: dict[str, Any]) -> None:
        self.behaviours.update(behaviour)
        worker = Worker(queue, self.run, {**self.options, **settings})
        worker.on("completed", lambda job, _: report("completed", id=job.id, name=job.name))
        worker.on(
            "failed",
            lambda job, error: report("failed", id=job.id, name=job.name, reason=str(error)),
        )
        worker.on("stalled", lambda job_id: report("stalled", id=job_id))
        worker.on("error", lambda error, _job=None: report("error", reason=str(error)))
        self.workers.append(worker)
        report("working", queue=queue)

    async def add(self, queue: str, name: str, data: Any, opts: dict[str, Any]) -> None:
        producer = Queue(queue, self.options)
        job = await producer.add(name, data, opts)
        await producer.close()
        report("added", id=job.id, name=name)

    async def manage(self, queue: str, job: str | None, method: str, args: list[Any]) -> None:
        manager = Queue(queue, self.options)
        try:
            target = await manager.getJob(job) if job else manager
            report("managed", method=method, result=await getattr(target, method)(*args))
        finally:
            await manager.close()

    async def listen(self, queue: str, types: list[str]) -> None:
        listener = QueueEvents(queue, {**self.options, "lastEventId": "0"})
        for kind in types:
            listener.on(kind, partial(self.tell, queue, kind))
        listener.on("error", lambda error: report("error", reason=str(error)))
        self.listeners.append(listener)
        report("listening", queue=queue)

    def tell(self, queue: str, kind: str, fields: dict[str, Any], entry_id: str) -> None:
        report("event", queue=queue, type=kind, id=entry_id, fields=fields)

    async def release(self, name: str) -> None:
        self.gates[name].set()

    async def close(self) -> None:
        for opened in (*self.workers, *self.listeners):
            await opened.close()
        report("closed")


async def obey() -> None:
    client = Client()
    orders: dict[str, Callable[..., Awaitable[None]]] = {
        order: getattr(client, order)
        for order in ("connect", "work", "add", "manage", "listen", "release", "close")
    }
    # A read returns nothing when the process that sends orders has ended.
    while line := await asyncio.to_thread(sys.stdin.readline):
        fields = json.loads(line)
        order = fields.pop("order")
        try:
            await orders[order](**fields)
        except Exception as error:
            report("refused", order=order, reason=str(error))
        if order == "close":
            return


asyncio.run(obey())
