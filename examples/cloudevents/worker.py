"""A stock BullMQ worker that posts the end of a saga as a CloudEvent: structured mode, over HTTP.

If the receiver does not accept an event, the job fails, and BullMQ retries it as often as its
`attempts` allow. So a receiver may get an event twice, with the same source and id.
"""

import asyncio
import json
import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bullmq import Worker
from redis.asyncio.connection import parse_url

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
# By default, redis-py 8 ends a read after 5 s, which is as long as a worker waits for a job.
CONNECTION = {**parse_url(URL), "socket_timeout": None}
PREFIX = os.environ.get("BULLMQ_PREFIX", "bull")
QUEUE = os.environ.get("QUEUE", "saga-ends")
SINK = os.environ.get("SINK", "http://127.0.0.1:8080/")
SOURCE = os.environ.get("SOURCE", "/sagas")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def send(event: dict[str, Any]) -> None:
    """Post an event; raise an error unless the receiver accepts it."""
    kind = {"content-type": "application/cloudevents+json; charset=utf-8"}
    try:
        with urlopen(Request(SINK, json.dumps(event).encode(), kind), timeout=10):
            return
    except HTTPError as error:
        raise RuntimeError(f"{SINK} answered {error.code}") from None


async def post(job: Any, _token: str) -> None:
    event = {
        "specversion": "1.0",
        "id": job.id,
        "source": SOURCE,
        "type": f"dev.jobgroups.saga.{job.data['state'].lower()}",
        "subject": job.data["groupName"],
        "time": datetime.fromtimestamp(job.timestamp / 1000, UTC).isoformat(),
        "datacontenttype": "application/json",
        "data": job.data,
    }
    await asyncio.to_thread(send, event)


async def main() -> None:
    stopped = asyncio.Event()
    for stop in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(stop, stopped.set)
    worker = Worker(QUEUE, post, {"connection": CONNECTION, "prefix": PREFIX})
    worker.on("failed", lambda job, error: say(f"{job.id} was not posted: {error}"))
    worker.on("error", lambda error, _job=None: sys.stderr.write(f"{error}\n"))
    say("working")
    await stopped.wait()
    # Without the pause, closing would lose a job that is just being fetched from Redis.
    await worker.pause()
    await worker.close()


asyncio.run(main())
