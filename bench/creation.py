"""Groups created per second, compared with BullMQ's flows and with a bare socket."""

import math
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from threading import Thread
from typing import Any

from bench.harness import DATA, QUEUES, Bench, create, group, over
from bench.rows import Row, row
from jobgroup.definition.plan import pack_plans, plan_group
from jobgroup.definition.spec import generate_group_id, parse_group
from jobgroup.model import names
from jobgroup.model.clock import now_ms
from jobgroup.store.scripts import load
from jobgroup.store.store import BATCH_JOBS

BATCH = BATCH_JOBS // len(QUEUES)
# Batch sizes, and how many batches are sent at the same time.
WAYS = ((10, 8), (20, 2), (20, 4), (40, 2), (40, 4), (100, 2), (100, 4))


async def creation(bench: Bench) -> list[Row]:
    """Compare our fastest batch size with the fastest one of flows, and with a bare socket."""
    # Many short rounds: a disturbance of the machine then affects few ratios.
    count, rounds = bench.sizes.groups // 4, bench.sizes.rounds * 4

    async def flows(size: int, lanes: int) -> float:
        fields = {"count": count, "queues": QUEUES, "data": DATA, "size": size, "lanes": lanes}
        return await bench.bullmq("flows", **fields)

    async def ours(size: int, lanes: int, **of: Any) -> float:
        start = time.perf_counter()
        await create(bench.groups, count, size, lanes, **of)
        return time.perf_counter() - start

    async def bare() -> float:
        return send_bare(bench.server.port, encoded(count), count)

    flows_best, ours_best = [await best_way(bench, way) for way in (flows, ours)]
    took = await bench.in_turn(
        {
            "flows": partial(flows, *flows_best),
            "ours": partial(ours, *ours_best),
            "one batch at a time": partial(ours, 100, 1),
            "with undos": partial(ours, *ours_best, undo=True),
            "bare": bare,
        },
        rounds,
    )
    one_batch = took["one batch at a time"]
    return [
        row("creation.over-flows", over(took["flows"], took["ours"])),
        row("creation.over-flows-one-batch", over(took["flows"], one_batch)),
        row("creation.over-flows-undos", over(took["flows"], took["with undos"])),
        row("creation.over-socket", over(took["bare"], took["ours"])),
        row("creation.over-socket-one-batch", over(took["bare"], one_batch)),
    ]


async def best_way(
    bench: Bench, contender: Callable[[int, int], Awaitable[float]]
) -> tuple[int, int]:
    """Return the batch size and the number of lanes with which a contender is fastest."""
    runs = {str(way): partial(contender, *way) for way in WAYS}
    took = await bench.in_turn(runs, rounds=min(3, bench.sizes.rounds))
    return min(WAYS, key=lambda way: min(took[str(way)]))


def encoded(count: int) -> bytes:
    """Return the bytes of the calls that create this number of groups."""
    script = load("create_groups")
    definition = parse_group(**group())
    plans = [plan_group(definition, generate_group_id()) for _ in range(count)]
    wire = b""
    for first in range(0, count, BATCH):
        packed = pack_plans(plans[first : first + BATCH])
        parked = names.parked_key("bull")
        call = script.command(parked=parked, now=now_ms(), prefix="bull", plans=packed)
        texts = [part if isinstance(part, bytes) else str(part).encode() for part in call]
        wire += b"*%d\r\n" % len(texts)
        wire += b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts)
    return wire


def send_bare(port: int, wire: bytes, groups: int) -> float:
    """Send all calls through one socket; return the seconds until the last reply."""
    lines = groups + math.ceil(groups / BATCH)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        start = time.perf_counter()
        sender = Thread(target=connection.sendall, args=(wire,))
        sender.start()
        while lines > 0:
            lines -= connection.recv(65536).count(b"\n")
        took = time.perf_counter() - start
        sender.join()
    return took
