"""The parts that all worlds share: Redis, stock queues, and the scripts for each budget."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from jobgroup.model.names import LEDGER_QUEUE
from jobgroup.store.scripts import FOLDER, Script, load
from jobgroup.store.store import Store
from testbed.servers.redis_kinds import master_of
from tests.sagas.histories import instant
from tests.sagas.histories.job_model import UNDOS
from tests.sagas.histories.look import Looker
from tests.sagas.histories.node_queue import NodeClient, NodeHolder, NodeQueue
from tests.sagas.histories.stock_queue import Holder, StockConnection, StockQueue

AnyQueue = StockQueue | NodeQueue
AnyHolder = Holder | NodeHolder

# How many jobs one script call may change. The groups here are too small to reach the real limit of
# 200, so the scripts run from copies with smaller limits, too. With the smallest one, a list with
# more than LONGEST entries is too long to search.
BUDGETS = (1, 2, 200)
LONGEST = 4
QUEUES = ("a", "b", "a:compensation", "b:compensation", UNDOS)


@dataclass(frozen=True)
class Kit:
    """The scripts, copied with one budget."""

    store: Store
    looker: Looker
    remove: Script


@dataclass(frozen=True)
class Ground:
    """The shared parts of all worlds."""

    redis: Redis
    prefix: str
    queues: dict[str, AnyQueue]
    # The pseudo queue, as a foreign client sees it.
    ledger: StockQueue
    kits: dict[int, Kit]
    # Whether clients of 5.x and of later versions use the same queues.
    mixes_versions: bool


@contextmanager
def ground(
    redis_url: str,
    prefix: str,
    workshop: Path,
    lua: Path = FOLDER,
    flavour: str = "python",
    admin_url: str = "",
) -> Iterator[Ground]:
    """Create the shared parts for worlds that run the scripts of a folder, with a stock client.

    All but the scripts have the rights of `admin_url`, if given.
    """
    own, redis = (instant.connect(url, prefix) for url in (redis_url, admin_url or redis_url))
    kits = {}
    for budget in BUDGETS:
        folder = with_budget(lua, workshop / str(budget), budget)
        looker = Looker(redis, prefix, folder)
        kits[budget] = Kit(Store(own, prefix, folder), looker, load("remove_group", folder))
    ledger = StockQueue(StockConnection(redis), prefix, LEDGER_QUEUE)
    with stock_queues(flavour, redis, admin_url or redis_url, prefix) as queues:
        yield Ground(redis, prefix, queues, ledger, kits, mixes_versions=flavour == "python")
    for client in (own, redis):
        instant.run(client.aclose())


@contextmanager
def stock_queues(
    flavour: str, redis: Redis, redis_url: str, prefix: str
) -> Iterator[dict[str, AnyQueue]]:
    """Create the queues as a stock client sees them."""
    if flavour == "python":
        connection = StockConnection(redis)
        yield {name: StockQueue(connection, prefix, name) for name in QUEUES}
        return
    # On a Cluster, BullMQ for Node neither removes orphans nor deletes all keys of a queue. So it
    # uses the server that has the keys, as the other clients of a history do.
    client = NodeClient(flavour, master_of(redis_url, prefix), prefix)
    try:
        yield {name: NodeQueue(client, redis, prefix, name) for name in QUEUES}
    finally:
        client.close()


def with_budget(lua: Path, folder: Path, budget: int) -> Path:
    """Copy the scripts and limit how many jobs one call changes."""
    shutil.copytree(lua, folder)
    for script in ("includes/settle.lua", "remove_group.lua"):
        text, found = re.subn(r"= 200\b", f"= {budget}", (folder / script).read_text())
        assert found, f"{script} has no budget of 200 jobs any more"
        if budget == min(BUDGETS):
            text, found = re.subn(r"= 300000\b", f"= {LONGEST}", text)
            assert found, f"{script} has no budget of 300000 entries any more"
        (folder / script).write_text(text)
    return folder
