"""While a slot moves, a call is refused and waited out: nothing is judged by half of the data."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from jobgroup import Driver, JobGroups
from jobgroup.definition.answers import completion
from jobgroup.model import names
from jobgroup.store.connection import RedisError, connect, is_transient
from jobgroup.store.details import read_fields
from jobgroup.store.reviews import Cursor
from jobgroup.store.scripts import FOLDER, Script
from testbed.servers.redis import HERE, find_redis
from testbed.servers.redis_cluster import ClusterNode, ClusterServers
from testbed.support.sagas import reached
from testbed.support.waiting import eventually

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        shutil.which("apt-get") is None, reason="this Redis is in packages of Debian"
    ),
]

PREFIX = "{bull}"
JOBS = [{"name": "pay", "queueName": "payments"}, {"name": "ship", "queueName": "shipping"}]
GROUPS = 40
OWNER = "owner"

Calls = dict[str, Callable[[], Awaitable[Any]]]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServers]:
    with ClusterServers(tmp_path_factory.mktemp("cluster") / "servers") as servers:
        yield servers


@pytest.fixture
async def groups(servers: ClusterServers) -> AsyncIterator[JobGroups]:
    async with JobGroups.connect(servers.url, PREFIX) as groups:
        yield groups
        servers.master(PREFIX).call("FLUSHALL")


class Move:
    """The slot of the prefix on its way from one master to another, key by key."""

    def __init__(self, servers: ClusterServers) -> None:
        self._servers = servers
        self._slot = servers.slot(PREFIX)
        self.source = servers.master(PREFIX)
        masters = [node for node in servers.nodes if node.call("ROLE")[0] == "master"]
        self.target: ClusterNode = next(node for node in masters if node is not self.source)
        self.target.call("CLUSTER", "SETSLOT", self._slot, "IMPORTING", self.source.id)
        self.source.call("CLUSTER", "SETSLOT", self._slot, "MIGRATING", self.target.id)

    def remaining(self) -> list[str]:
        """Return the keys that have not moved."""
        return sorted(self.source.call("CLUSTER", "GETKEYSINSLOT", self._slot, 100_000))

    def move(self, keys: Sequence[str]) -> None:
        where = ("127.0.0.1", self.target.port, "", 0, 5000)
        self.source.call("MIGRATE", *where, "KEYS", *keys)

    def finish(self) -> None:
        if keys := self.remaining():
            self.move(keys)
        for node in (self.target, self.source):
            node.call("CLUSTER", "SETSLOT", self._slot, "NODE", self.target.id)


def scripts(groups: JobGroups, group_id: str) -> Calls:
    """Return a call of each script."""
    store, start = groups.store, Cursor()
    return {
        "create": lambda: groups.add_group("order", JOBS, group_id="another"),
        "settle": lambda: groups.store.settle([group_id]),
        "cancel": lambda: groups.cancel_group(group_id),
        "retry undos": lambda: store.retry_undos(group_id),
        "resolve undo": lambda: store.resolve_undo(group_id, names.job_id(group_id, 0), "by hand"),
        "answer": lambda: store.answer(group_id, names.job_id(group_id, 0), completion(None, "")),
        "remove": lambda: groups.remove_group(group_id),
        "read": lambda: groups.get_group_state(group_id),
        "read jobs": lambda: groups.get_group_jobs(group_id),
        "read with jobs": lambda: store.read_with(group_id, jobs=True, incarnation=True),
        "orphan": lambda: store.orphan(group_id),
        "tombstone": lambda: store.tombstone("unknown"),
        "incarnation": store.incarnation,
        "list": lambda: groups.list_groups("ACTIVE"),
        "results": lambda: groups.get_group_results(group_id),
        "totals": store.totals,
        "backlogs": lambda: store.queues.backlogs([("payments", 0)]),
        "settle wake-ups": lambda: store.wakeups.settle(),
        "wait and settle": lambda: store.wakeups.wait_and_settle(0.1),
        "review": lambda: store.reviews.review("ACTIVE", start),
        "short": lambda: store.reviews.short("ACTIVE", start),
        "unparked": lambda: store.reviews.unparked("payments", start),
        "released": lambda: store.reviews.released(start),
        "due": lambda: store.reviews.due(start),
        "prune": lambda: store.reviews.prune("COMPLETED", 0, start),
        "reclaim": store.reviews.reclaim,
        "claim": lambda: store.reviews.claim("driver", 1000),
        "hints": lambda: store.reviews.hints({"payments": "0-0"}),
    }


def commands(groups: JobGroups, group_id: str) -> Calls:
    """Return the calls without a script, whose keys have moved."""
    store = groups.store
    job = names.job_key(PREFIX, "payments", names.job_id(group_id, 0))
    return {
        "owning queue": lambda: store.owning_queue(group_id),
        "owned": lambda: store.owned(OWNER, [group_id]),
        "details": lambda: read_fields(store.redis, [job], "name"),
        "owning queues": store.reviews.owning_queues,
        "newest event": lambda: store.streams.newest_event("payments"),
        "events": lambda: store.streams.read_stream("payments", "0-0", 100),
        "stirred": lambda: store.queues.stirred({"payments": "0-0", "shipping": "0-0"}, 0.1),
        "changes": lambda: store.streams.changes(OWNER, "0-0", 0.1),
        "checkpoint": lambda: store.streams.read_checkpoint(OWNER, "reader"),
        "save checkpoint": lambda: store.streams.save_checkpoint(OWNER, "reader", "1-0"),
        "pass on": store.wakeups.pass_on,
        "set aside": lambda: store.wakeups.set_aside(group_id),
    }


async def errors_of(calls: Calls) -> dict[str, Exception | None]:
    found: dict[str, Exception | None] = {}
    for name, call in calls.items():
        try:
            await call()
        except RedisError as error:
            found[name] = error
        else:
            found[name] = None
    return found


async def test_a_script_is_refused_whatever_has_moved(
    servers: ClusterServers, groups: JobGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    called, command = set(), Script.command

    def record(script: Script, **slots: Any) -> tuple[Any, ...]:
        called.add(script.name)
        return command(script, **slots)

    monkeypatch.setattr(Script, "command", record)
    node = await groups.add_group("order", JOBS)
    group_id = node.group_id
    move = Move(servers)
    try:
        parent = names.parent_key(PREFIX, group_id)
        # Nothing yet; what a group is judged by, but not its ledger; almost everything.
        stages = [[], [f"{PREFIX}:payments:groups:{group_id}", *(job.job_key for job in node.jobs)]]
        left = {parent, names.parked_key(PREFIX), names.wakeups_key(PREFIX)}
        stages.append([key for key in move.remaining() if key not in left | {*stages[1]}])
        for keys in stages:
            if keys:
                move.move(keys)
            for name, error in (await errors_of(scripts(groups, group_id))).items():
                assert error is not None, name
                assert is_transient(error), (name, error)
                assert "non local" not in str(error), name
    finally:
        move.finish()
    assert called == {path.stem for path in FOLDER.glob("*.lua")}
    state = await groups.get_group_state(group_id)
    assert state is not None
    assert (state.state, state.revision, state.total_jobs) == ("ACTIVE", 1, 2)
    assert [job.status for job in await groups.get_group_jobs(group_id)] == ["pending"] * 2
    assert (await groups.cancel_group(group_id)).cancelled_count == 2


async def test_a_url_of_one_server_does_not_fit_a_cluster(servers: ClusterServers) -> None:
    others = [node for node in servers.nodes if node is not servers.master(PREFIX)]
    async with JobGroups.connect(f"redis://{others[0].address}", PREFIX) as groups:
        with pytest.raises(RedisError, match=r"use a redis\+cluster:// URL") as raised:
            await groups.add_group("order", JOBS)
    assert not is_transient(raised.value)


async def test_a_command_does_not_mistake_a_moved_key_for_a_missing_one(
    servers: ClusterServers, groups: JobGroups
) -> None:
    node = await groups.add_group("order", JOBS)
    move = Move(servers)
    try:
        move.move(move.remaining())
        for name, error in (await errors_of(commands(groups, node.group_id))).items():
            assert error is not None, name
            assert is_transient(error), (name, error)
    finally:
        move.finish()
    assert await groups.store.owning_queue(node.group_id) == "payments"


async def test_a_driver_judges_no_group_while_a_slot_moves_back_and_forth(
    servers: ClusterServers, groups: JobGroups
) -> None:
    made = await groups.add_groups([{"name": "order", "jobs": JOBS}] * GROUPS)
    ids = [node.group_id for node in made if not isinstance(node, Exception)]
    errors: list[Exception] = []
    driver = Driver(
        groups.store, on_error=lambda _, error: errors.append(error), resync_seconds=0.1
    )
    running = asyncio.create_task(driver.run())
    try:
        for _ in range(2):
            move = Move(servers)
            # The ledgers last.
            keys = sorted(move.remaining(), key=lambda key: key.endswith(":dependencies"))
            for start in range(0, len(keys), 20):
                await asyncio.to_thread(move.move, keys[start : start + 20])
            await asyncio.to_thread(move.finish)
            for group_id in ids:
                state = await reached(groups.store, group_id, state="ACTIVE")
                assert state.revision == 1
        assert not running.done()
        assert errors
        assert all(map(is_transient, errors)), errors
        for group_id in ids:
            assert (await groups.cancel_group(group_id)).cancelled_count == 2
    finally:
        running.cancel()
        await asyncio.wait([running])


async def is_up(node: ClusterNode) -> bool:
    return "cluster_state:ok" in node.call("CLUSTER", "INFO")


def fix(servers: ClusterServers) -> None:
    """Complete the move of a slot as the docs say."""
    command = [str(find_redis("8.0").with_name("redis-cli")), "--cluster", "fix"]
    subprocess.run(
        [*command, servers.master(PREFIX).address, "--cluster-yes"], check=True, capture_output=True
    )


async def test_nothing_is_judged_if_the_source_of_a_moving_slot_fails(
    servers: ClusterServers, groups: JobGroups
) -> None:
    """The replica that takes over may have forgotten that the slot moves."""
    made = await groups.add_groups([{"name": "order", "jobs": JOBS}] * GROUPS)
    nodes = [node for node in made if not isinstance(node, Exception)]
    errors: list[Exception] = []
    driver = Driver(
        groups.store, on_error=lambda _, error: errors.append(error), resync_seconds=0.1
    )
    running = asyncio.create_task(driver.run())
    try:
        move = Move(servers)
        # What a group is judged by, but not its ledger.
        move.move([job.job_key for node in nodes for job in node.jobs])
        replicas = move.source.call("INFO", "replication")["connected_slaves"]
        assert move.source.call("WAIT", replicas, 10_000) == replicas
        move.source.kill()
        await asyncio.to_thread(servers.wait_for_another_master, move.source, PREFIX)
        said = f"{move.target.address} imports the slot {servers.slot(PREFIX)}, which"

        async def is_noticed() -> bool:
            return any(said in str(error) for error in errors)

        await eventually(is_noticed)
        move.source.start_again()
        await eventually(lambda: is_up(move.target))
        await asyncio.to_thread(fix, servers)
        for node in nodes:
            state = await reached(groups.store, node.group_id, state="ACTIVE")
            assert state.revision == 1
        assert not running.done()
        assert all(map(is_transient, errors)), errors
        await asyncio.to_thread(servers.wait_until_ready)
        for node in nodes:
            assert (await groups.cancel_group(node.group_id)).cancelled_count == 2
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_new_client_notices_that_a_node_without_slots_imports_the_slot(
    servers: ClusterServers, tmp_path: Path
) -> None:
    owner, slot = servers.master(PREFIX), servers.slot(PREFIX)
    with ClusterNode(tmp_path / "empty", version="8.0") as empty:
        name = empty.id

        async def have_met() -> bool:
            views = [{each.id for each in node.members()} for node in (owner, empty)]
            return owner.id in views[1] and name in views[0]

        empty.call("CLUSTER", "MEET", HERE, owner.port, owner.bus_port)
        await eventually(have_met)
        async with connect(f"redis+cluster://{owner.address}", PREFIX) as client:
            await client.ping()
        empty.call("CLUSTER", "SETSLOT", slot, "IMPORTING", owner.id)
        async with connect(f"redis+cluster://{owner.address}", PREFIX) as client:
            with pytest.raises(RedisError, match=f"{empty.address} imports the slot {slot}"):
                await client.ping()

    async def is_forgotten() -> bool:
        for node in servers.nodes:
            with suppress(ResponseError):  # it does not know the node
                node.call("CLUSTER", "FORGET", name)
        return not any(name == each.id for node in servers.nodes for each in node.members())

    await eventually(is_forgotten)
    await asyncio.to_thread(servers.wait_until_ready)
