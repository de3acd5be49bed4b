"""A stock BullMQ worker for the stories, as worker.mjs is one in Node; it knows no `after`."""

import asyncio
import os
import signal
import sys
from typing import Any

from bullmq import UnrecoverableError, Worker
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url

# redis-py 8 gives up on a read after 5 s, which is as long as a worker waits for a job.
URL = os.environ["REDIS_URL"]
CONNECTION = {**parse_url(URL), "socket_timeout": None}

redis: Any = Redis.from_url(URL, socket_timeout=None)


async def run(job: Any, _token: str) -> Any:
    told = job.data.get("compensationData", job.data)
    await redis.rpush(os.environ["TRAIL"], f"began {job.name}")
    await asyncio.sleep(told.get("seconds", 0))
    if "fails" in told:
        raise UnrecoverableError(told["fails"])
    await redis.rpush(os.environ["TRAIL"], f"ended {job.name}")
    return told.get("returns")


async def main() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    options = {"connection": CONNECTION, "prefix": "bull"}
    workers = [Worker(queue, run, options) for queue in os.environ["QUEUES"].split(",")]
    for worker in workers:
        worker.on("error", lambda error, _job=None: sys.stderr.write(f"{error}\n"))
    await stopped.wait()
    # Without the pause, closing would forget a job that is on its way from Redis just now.
    await asyncio.gather(*(worker.pause() for worker in workers))
    await asyncio.gather(*(worker.close() for worker in workers))
    await redis.aclose()


asyncio.run(main())
