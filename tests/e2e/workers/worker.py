"""A stock BullMQ worker for the end-to-end tests, like worker.mjs; it does not support `after`."""

import asyncio
import os
import signal
import sys
from typing import Any

from bullmq import UnrecoverableError, Worker
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url

# By default, redis-py 8 ends a read after 5 s, which is as long as a worker waits for a job.
URL = os.environ["REDIS_URL"]
CONNECTION = {**parse_url(URL), "socket_timeout": None}

redis: Any = Redis.from_url(URL, socket_timeout=None)


async def run(job: Any, _token: str) -> Any:
    wanted = job.data.get("compensationData", job.data)
    await redis.rpush(os.environ["TRAIL"], f"began {job.name}")
    await asyncio.sleep(wanted.get("seconds", 0))
    if "fails" in wanted:
        raise UnrecoverableError(wanted["fails"])
    await redis.rpush(os.environ["TRAIL"], f"ended {job.name}")
    return wanted.get("returns")


async def main() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    options = {"connection": CONNECTION, "prefix": "bull"}
    workers = [Worker(queue, run, options) for queue in os.environ["QUEUES"].split(",")]
    for worker in workers:
        worker.on("error", lambda error, _job=None: sys.stderr.write(f"{error}\n"))
    await stopped.wait()
    # Pause first: `close` alone can lose a job that is being fetched.
    await asyncio.gather(*(worker.pause() for worker in workers))
    await asyncio.gather(*(worker.close() for worker in workers))
    await redis.aclose()


asyncio.run(main())
