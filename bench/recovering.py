"""How soon another replica leads after a fatal error of the leader, how long sagas stand still when
it is killed, and how soon the operator finds an object that a silent watch did not deliver.
"""

import asyncio
import time
from collections.abc import Callable

from aiohttp import web

from bench.field import Field, ready, the_field
from bench.harness import Bench, BullMQ
from bench.rows import Row, row
from jobgroup import JobGroups
from jobgroup.resource.kinds import API_VERSION
from testbed.servers.operator import MAIN, OperatorProcess, start_operator
from testbed.servers.proxy import Proxy

LIST = f"/apis/{API_VERSION}/jobgroups"
LOOK_SECONDS = 0.01
UNDONE = "undone"
COMPENSATED = 200


async def recovering(bench: Bench) -> list[Row]:
    """Measure failovers, a leader that is killed, then a silent watch."""
    sizes = bench.sizes
    async with the_field() as field:
        waits = [await failover(field, n) for n in range(sizes.failovers)]
        pauses = [await leaderless(field, n) for n in range(sizes.failovers)]
        silent = await silence(field, sizes.watch_timeout)
    return [
        row("recovering.failover", max(waits)),
        row("recovering.leaderless", max(pauses)),
        row("recovering.silence", silent),
    ]


async def failover(field: Field, number: int) -> float:
    """Refuse the lists of the leader for good; return the seconds until another replica leads."""
    with Proxy(field.api) as proxy, replica(field, f"first-{number}", proxy) as first:
        await until(lambda: proxy.watches > 0 and "this replica leads" in first.log)
        with replica(field, f"second-{number}") as second:
            await until(lambda: "this replica waits" in second.log)
            refused_at: list[float] = []

            def refuse(request: web.BaseRequest) -> web.Response | None:
                if request.path != LIST:
                    return None
                refused_at.append(time.monotonic())
                missing = {"kind": "Status", "apiVersion": "v1", "code": 404}
                return web.json_response(missing, status=404)

            proxy.refuse = refuse
            proxy.cut_watches()
            await until(lambda: "this replica leads" in second.log)
            return time.monotonic() - refused_at[0]


async def leaderless(field: Field, number: int) -> float:
    """Kill the leader while groups are undone; return the longest time in which none ended."""
    undone = {"name": "compensated", "compensation": {"works": {"name": "undoes"}}}
    jobs = [{"name": name, "queueName": UNDONE} for name in ("works", "fails")]
    async with (
        JobGroups.connect(field.redis.url) as groups,
        BullMQ.start(field.redis.url) as bullmq,
        BullMQ.start(field.redis.url, f"bull:{UNDONE}") as undoing,
    ):

        async def count_ended() -> int:
            return (await groups.store.totals()).groups["FAILED"]

        with replica(field, f"killed-{number}") as leader:
            await until(lambda: "this replica leads" in leader.log)
            with replica(field, f"stays-{number}") as other:
                await until(lambda: "this replica waits" in other.log)
                await groups.add_groups([{**undone, "jobs": jobs}] * COMPENSATED)
                await bullmq("work", count=2 * COMPENSATED, queues=[UNDONE], concurrency=50)
                working = asyncio.create_task(
                    undoing("work", count=COMPENSATED, queues=["compensation"], concurrency=1)
                )
                while (ended := await count_ended()) < COMPENSATED // 10:
                    await asyncio.sleep(0)
                leader.server.kill()
                longest, since = 0.0, time.monotonic()
                while ended < COMPENSATED:
                    await asyncio.sleep(0)
                    if (now_ended := await count_ended()) > ended:
                        longest = max(longest, time.monotonic() - since)
                        ended, since = now_ended, time.monotonic()
                await working
        await groups.store.redis.flushall()
    return longest


async def silence(field: Field, seconds: int) -> float:
    """Create an object while the watch is silent; return the seconds until its group has ended."""
    with (
        Proxy(field.api) as proxy,
        replica(field, "silent", proxy, WATCH_TIMEOUT_SECONDS=str(seconds)) as process,
    ):
        await ready(field, process)
        proxy.silence_watches()
        start = time.monotonic()
        await field.make(["unseen"])
        await field.ended(["first", "unseen"])
        took = time.monotonic() - start
        assert f"the watch of {LIST} was silent" in process.log
    await field.clear()
    return took


def replica(field: Field, name: str, proxy: Proxy | None = None, **env: str) -> OperatorProcess:
    """Start a replica, which may reach the API server through a proxy."""
    kubeconfig = field.api.kubeconfig(name, proxy.url) if proxy else field.api.operator
    return start_operator(field.folder, kubeconfig, field.redis.url, "bull", name, MAIN, **env)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not holds():
        await asyncio.sleep(LOOK_SECONDS)
