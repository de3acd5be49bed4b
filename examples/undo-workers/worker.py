"""Stock BullMQ workers for the jobs of order.yaml and for their undos.

Jobs and undos may run more than once, as ever in BullMQ: a real one would hand the order's id to
the payment provider as its idempotency key, and refund a payment only if it is not refunded yet.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from bullmq import Worker
from redis.asyncio.connection import parse_url

Data = dict[str, Any]

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
# redis-py 8 gives up on a read after 5 s, which is as long as a worker waits for a job.
CONNECTION = {**parse_url(URL), "socket_timeout": None}
PREFIX = os.environ.get("BULLMQ_PREFIX", "bull")
STOCK = {"teapot": 10}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def charge(order: Data) -> Data:
    say(f"charged {order['amount']} for order {order['orderId']}")
    return {"paymentId": f"pay-{order['orderId']}"}


def reserve(order: Data) -> Data:
    if order["quantity"] > STOCK.get(order["sku"], 0):
        raise RuntimeError(f"there are not {order['quantity']} of {order['sku']}")
    say(f"reserved {order['quantity']} of {order['sku']} for order {order['orderId']}")
    return {"reservationId": f"res-{order['orderId']}"}


def confirm(order: Data) -> Data:
    say(f"confirmed order {order['orderId']} to {order['to']}")
    return {"messageId": f"msg-{order['orderId']}"}


# An undo is told what its job returned, and the data of its compensation.
def refund(undo: Data) -> None:
    say(f"refunded {undo['originalReturnValue']['paymentId']}")


def release(undo: Data) -> None:
    say(f"released {undo['originalReturnValue']['reservationId']}")


def apologize(undo: Data) -> None:
    say(f"apologized to {undo['compensationData']['to']}")


RUNS: dict[str, Callable[[Data], Data | None]] = {
    "payments": charge,
    "payments:compensation": refund,
    "inventory": reserve,
    "inventory:compensation": release,
    "notifications": confirm,
    "notifications:compensation": apologize,
}
# Those named in QUEUES, or all: a Deployment that a WorkerPool scales works on one queue alone.
WANTED = os.environ["QUEUES"].split(",") if "QUEUES" in os.environ else list(RUNS)


def work(queue: str, run: Callable[[Data], Data | None]) -> Worker:
    async def process(job: Any, _token: str) -> Data | None:
        return run(job.data)

    worker = Worker(queue, process, {"connection": CONNECTION, "prefix": PREFIX})
    worker.on("failed", lambda job, error: say(f"{job.name} failed: {error}"))
    worker.on("error", lambda error, _job=None: sys.stderr.write(f"{error}\n"))
    return worker


async def main() -> None:
    stopped = asyncio.Event()
    for stop in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(stop, stopped.set)
    workers = [work(queue, run) for queue, run in RUNS.items() if queue in WANTED]
    say("working")
    await stopped.wait()
    # Finish the jobs at hand, take no more.
    await asyncio.gather(*(worker.close() for worker in workers))


asyncio.run(main())
