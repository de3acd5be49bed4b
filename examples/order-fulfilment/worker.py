"""Stock BullMQ workers for the jobs of an order and for their undos.

BullMQ runs a job at least once, so any of these may run twice. Each effect has a name derived from
the order, here that of an entry in the shop's books: an existing entry is not added again, and a
removed one is not removed again. Payment providers call such a name an idempotency key.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from bullmq import UnrecoverableError, Worker
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url

Data = dict[str, Any]
Run = Callable[[Data], Awaitable[Data | None]]

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
# By default, redis-py 8 ends a read after 5 s, which is as long as a worker waits for a job.
CONNECTION = {**parse_url(URL), "socket_timeout": None}
PREFIX = os.environ.get("BULLMQ_PREFIX", "bull")
STOCK = {"teapot": int(os.environ.get("TEAPOTS", "10"))}
CITIES = ["Berlin", "Lisbon", "Oslo"]
# How long each job takes, for a demonstration.
WORK_SECONDS = int(os.environ.get("WORK_MS", "0")) / 1000

redis: Any = Redis(**CONNECTION)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def enter(book: str, entry: str, value: Any, done: str) -> None:
    is_new = await redis.hsetnx(f"{PREFIX}-shop:{book}", entry, value)
    say(done if is_new else f"{entry} is in the books already")


async def take_out(book: str, entry: str, done: str) -> None:
    was_there = await redis.hdel(f"{PREFIX}-shop:{book}", entry)
    say(done if was_there else f"{entry} is in the books no more")


async def charge(order: Data) -> Data:
    payment = f"pay-{order['orderId']}"
    done = f"charged {order['amount']} for order {order['orderId']}"
    await enter("payments", payment, order["amount"], done)
    return {"paymentId": payment}


async def reserve(order: Data) -> Data:
    quantity, sku = order["quantity"], order["sku"]
    if quantity > STOCK.get(sku, 0):
        raise RuntimeError(f"there are not {quantity} of {sku}")
    reservation = f"res-{order['orderId']}"
    done = f"reserved {quantity} of {sku} for order {order['orderId']}"
    await enter("reservations", reservation, quantity, done)
    return {"reservationId": reservation}


async def ship(order: Data) -> Data:
    city = order["city"]
    if city not in CITIES:
        raise RuntimeError(f"no carrier goes to {city}")
    parcel = f"box-{order['orderId']}"
    await enter("parcels", parcel, city, f"booked a parcel to {city} for order {order['orderId']}")
    return {"parcelId": parcel}


# An undo gets the return value of its job, and the data of its compensation.
async def refund(undo: Data) -> None:
    payment = undo["originalReturnValue"]["paymentId"]
    await take_out("payments", payment, f"refunded {payment}: {undo['compensationData']['note']}")


async def release(undo: Data) -> None:
    reservation = undo["originalReturnValue"]["reservationId"]
    await take_out("reservations", reservation, f"released {reservation}")


async def cancel_parcel(undo: Data) -> None:
    parcel = undo["originalReturnValue"]["parcelId"]
    await take_out("parcels", parcel, f"cancelled {parcel}")


QUEUES: dict[str, dict[str, Run]] = {
    "payments": {"charge-payment": charge},
    "refunds": {"refund-payment": refund},
    "inventory": {"reserve-stock": reserve},
    "releases": {"release-stock": release},
    "shipping": {"book-shipping": ship},
    "cancellations": {"cancel-shipping": cancel_parcel},
}


def work(queue: str) -> Worker:
    async def run(job: Any, _token: str) -> Data | None:
        known = QUEUES[queue].get(job.name)
        if known is None:
            # A retry would not help: fail for good, so that the completed jobs are undone.
            raise UnrecoverableError(f"no worker of {queue} knows how to {job.name}")
        await asyncio.sleep(WORK_SECONDS)
        return await known(job.data)

    def complain(job: Any, error: object) -> None:
        attempts = job.opts.get("attempts") or 1
        say(f"{job.name} failed: {error} (attempt {job.attemptsMade} of {attempts})")

    worker = Worker(queue, run, {"connection": CONNECTION, "prefix": PREFIX})
    worker.on("failed", complain)
    worker.on("error", lambda error, _job=None: sys.stderr.write(f"{error}\n"))
    return worker


async def main() -> None:
    # The queues that QUEUES names, or all. A WorkerPool scales the workers of one queue.
    wanted = os.environ["QUEUES"].split(",") if "QUEUES" in os.environ else list(QUEUES)
    if strange := [queue for queue in wanted if queue not in QUEUES]:
        sys.exit(f"QUEUES names {','.join(strange)}; there are {','.join(QUEUES)}")
    stopped = asyncio.Event()
    for stop in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(stop, stopped.set)
    workers = [work(queue) for queue in wanted]
    say("working")
    await stopped.wait()
    # Take no more jobs and finish the active ones. Without the pause, closing would lose a job that
    # is just being fetched from Redis.
    await asyncio.gather(*(worker.pause() for worker in workers))
    await asyncio.gather(*(worker.close() for worker in workers))
    await redis.aclose()


asyncio.run(main())
