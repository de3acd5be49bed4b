"""Sagas end, and nothing is doubled, while servers are killed or frozen, and data move.

`make failover` kills 50 masters of each kind (KILLS) and has all servers away for a minute (AWAY,
in seconds). `make test` kills one, and starts the servers again when the drivers have noticed.
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from testbed.servers.redis import RedisServer
from testbed.servers.redis_cluster import NODE_TIMEOUT_MS, ClusterServers
from testbed.servers.redis_kinds import PATIENT_MS
from testbed.servers.redis_sentinel import SERVICE, SentinelServers
from testbed.support.waiting import eventually
from tests.sagas.failover.load import PREFIX, Figures, Load, Servers, load

KILLS = int(os.environ.get("KILLS", "1"))
AWAY_SECONDS = float(os.environ.get("AWAY", "0"))
LOCK_SECONDS = 30
# Of what Redis acknowledged while Sentinel replaced a master that worked. Without leaving the old
# master in time, thousands are lost.
MOST_LOST = 50
SLOT_MOVES = 4
# How long sagas may stand still after another master took over; printed, not asserted.
BAR_SECONDS = 2

pytestmark = [
    pytest.mark.timeout(300 + 120 * KILLS),
    pytest.mark.skipif(
        shutil.which("apt-get") is None, reason="this Redis is in packages of Debian"
    ),
]
START = {"sentinel": SentinelServers, "cluster": ClusterServers}


@pytest.fixture(scope="module", params=START)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    """Start servers that keep their data after a crash."""
    folder = tmp_path_factory.mktemp("failover") / "servers"
    with START[request.param](folder, persistent=True) as servers:
        yield servers


@pytest.fixture
async def sagas(servers: Servers, tmp_path: Path) -> AsyncIterator[Load]:
    async with load(servers, tmp_path) as sagas:
        yield sagas


@dataclass
class Failover:
    """How long it took, in seconds after the master failed."""

    began: float
    seconds: float = 0
    moved_after: float = 0

    def __str__(self) -> str:
        return (
            f"another master after {self.seconds:.2f} s,"
            f" the first saga moved after {self.moved_after:.2f} s"
        )


async def fail(servers: Servers, sagas: Load, master: RedisServer, freeze: bool) -> Failover:
    """Kill or freeze the master during compensation, and wait until sagas move again."""
    async with sagas.producing():
        await sagas.compensate()
        async with sagas.probing():
            failover = Failover(time.time())
            (master.freeze if freeze else master.kill)()
        await asyncio.to_thread(servers.wait_for_another_master, master, PREFIX)
        failover.seconds = time.time() - failover.began
        await eventually(lambda: sagas.has_moved_since(failover.began))
    failover.moved_after = await sagas.moved_after(failover.began) - failover.began
    return failover


async def finish(sagas: Load) -> Figures:
    """Wait until every saga has ended; nothing was lost or doubled that all replicas had."""
    figures = await sagas.finish()
    assert not figures.lost_for_no_reason
    assert not figures.doubled_for_no_reason
    return figures


async def test_killed_masters(servers: Servers, sagas: Load) -> None:
    kind = type(servers).__name__.removesuffix("Servers")
    failovers, lost, doubled = list[Failover](), 0, 0
    for number in range(1, KILLS + 1):
        sagas.begin()
        master = servers.master(PREFIX)
        failovers.append(await fail(servers, sagas, master, freeze=False))
        figures = await finish(sagas)
        lost, doubled = lost + figures.lost, doubled + figures.doubled
        print(f"{kind}, kill {number}: {failovers[-1]}; {figures}", flush=True)
        servers.start_again(master)
        await asyncio.to_thread(servers.wait_until_ready)
    seconds = median(each.seconds for each in failovers)
    moved = median(each.moved_after for each in failovers)
    behind = max(each.moved_after - each.seconds for each in failovers)
    print(
        f"{kind}, {KILLS} kills, medians: another master after {seconds:.2f} s, the first saga"
        f" moved after {moved:.2f} s, at most {behind:.2f} s after the failover (bar:"
        f" {BAR_SECONDS} s); {lost} sagas lost and {doubled} jobs doubled that no replica had"
    )


@pytest.mark.slow
async def test_a_master_that_is_replaced_without_a_failure(servers: Servers, sagas: Load) -> None:
    async with sagas.producing(producers=4, rest=0.01):
        await sagas.compensate()
        began = time.time()
        await asyncio.to_thread(servers.fail_over, PREFIX)
        await eventually(lambda: sagas.has_moved_since(began))
    figures = await sagas.finish()
    print(f"replaced: {figures}")
    assert figures.lost <= (MOST_LOST if isinstance(servers, SentinelServers) else 0)
    await asyncio.to_thread(servers.wait_until_ready)


async def test_a_frozen_master(servers: Servers, sagas: Load) -> None:
    master = servers.master(PREFIX)
    try:
        failover = await fail(servers, sagas, master, freeze=True)
    finally:
        master.thaw()
    figures = await sagas.finish()
    print(f"frozen: {failover}; {figures}")
    assert not figures.lost_for_no_reason
    # In a Cluster, ioredis gives up what it had sent to the frozen master. So workers do not report
    # the end of jobs that were active, and these run again when their locks have expired.
    assert not figures.doubled_for_no_reason or isinstance(servers, ClusterServers)
    await asyncio.to_thread(servers.wait_until_ready)


@pytest.mark.parametrize("servers", ["sentinel"], indirect=True)
async def test_sentinels_without_a_quorum(servers: SentinelServers, sagas: Load) -> None:
    first, *others = servers.sentinels
    master = servers.master()
    async with sagas.producing():
        await sagas.compensate()
        for sentinel in others:
            sentinel.kill()
        async with sagas.probing():
            master.kill()

        async def is_down() -> bool:
            return "s_down" in first.call("SENTINEL", "MASTER", SERVICE)["flags"]

        await eventually(is_down)
        for sentinel in others:
            sentinel.start_again()
        await asyncio.to_thread(servers.wait_for_another_master, master)
    print(f"quorum lost and back: {await finish(sagas)}")
    servers.start_again(master)
    await asyncio.to_thread(servers.wait_until_ready)


@pytest.mark.parametrize("servers", ["cluster"], indirect=True)
async def test_a_slot_that_moves_back_and_forth(servers: ClusterServers, sagas: Load) -> None:
    slot, home = servers.slot(PREFIX), servers.master(PREFIX)
    masters = [node for node in servers.nodes if node.call("ROLE")[0] == "master"]
    away = next(node for node in masters if node is not home)
    # A busy machine must not fail over.
    for node in servers.nodes:
        node.call("CONFIG", "SET", "cluster-node-timeout", PATIENT_MS)
    async with sagas.producing():
        await sagas.compensate(groups=200)
        for number in range(SLOT_MOVES):
            moved_at = time.time()
            await asyncio.to_thread(servers.move_slot, slot, home if number % 2 else away)
            await eventually(partial(sagas.has_moved_since, moved_at))
    figures = await sagas.finish()
    print(f"slot moved {SLOT_MOVES} times: {figures}")
    assert (figures.lost, figures.doubled) == (0, 0)
    for node in servers.nodes:
        node.call("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)
    await asyncio.to_thread(servers.wait_until_ready)


async def test_all_servers_are_away(servers: Servers, sagas: Load) -> None:
    async with sagas.producing():
        await sagas.compensate()
        master = servers.master(PREFIX)
        async with sagas.probing():
            for node in servers.nodes:
                node.kill()
        await eventually(sagas.is_noticed)
        await asyncio.sleep(AWAY_SECONDS)
        for node in sorted(servers.nodes, key=lambda node: node is not master):
            servers.start_again(node)
        await asyncio.to_thread(servers.wait_until_ready)
    figures = await sagas.finish()
    print(f"all servers away: {figures}")
    assert not figures.lost_for_no_reason
    # Later, the locks of jobs have expired.
    assert not figures.doubled_for_no_reason or AWAY_SECONDS >= LOCK_SECONDS / 2
