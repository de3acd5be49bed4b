"""Stock tools read a group as a flow: its pseudo parents are jobs whose children are its jobs."""

from typing import Any

import pytest

from jobgroup.model import names
from testbed.servers.stock import StockClient, fails_for_good, hangs
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import Sagas, job, undo

NODE = ("bullmq5", "bullmq6")
QUEUES = "/api/queues"
JOB = "/api/queues/:queueName/:jobId"
FLOW = f"{JOB}/flow"
# What stock clients store in a parent.
FIELDS = ("name", "timestamp", "delay", "priority")


def outline(tree: Any) -> Any:
    """Return the names in a tree; None for a job that the client did not find."""
    if tree is None:
        return None
    return (tree["job"]["name"], sorted(map(outline, tree.get("children", [])), key=str))


async def undoing(sagas: Sagas, client: StockClient) -> str:
    """Create an order whose second job fails, so that there is one undo; return its id."""
    undos = {"charge": undo("refund")}
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=undos)
    await client.work("payments")
    await client.heard("completed", name="charge")
    await client.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING", undo_count=1)
    return order.group_id


@pytest.mark.parametrize("flavour", NODE)
async def test_node_shows_a_group_as_a_tree(sagas: Sagas, client: StockClient) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    tree = await client.tree(names.LEDGER_QUEUE, order.group_id)
    assert outline(tree) == ("order", [("charge", []), ("reserve", [])])
    parent, created = tree["job"], (await sagas.read(order.group_id)).created_at
    assert (parent["timestamp"], parent["delay"], parent["priority"]) == (created, 0, 0)
    assert (parent["data"], parent["opts"].get("parent")) == ({}, None)


@pytest.mark.parametrize("flavour", NODE)
async def test_node_shows_the_undos_as_another_tree(
    sagas: Sagas, client: StockClient, flavour: str
) -> None:
    gid = await undoing(sagas, client)
    tree = await client.tree(names.LEDGER_QUEUE, gid)
    assert outline(tree) == ("order", [("charge", []), ("reserve", [])])
    undos = await client.tree(names.LEDGER_QUEUE, names.undo_id(gid))
    # 5.x takes the first part of the key as the name of the queue, which has a colon.
    assert outline(undos) == ("order", [None if flavour == "bullmq5" else ("refund", [])])
    given_up = (await sagas.read(gid)).failed_at
    assert (undos["job"]["timestamp"], undos["job"]["delay"]) == (given_up, 0)
    await client.work("payments:compensation")
    await sagas.ends(gid)
    assert outline(await client.tree(names.LEDGER_QUEUE, names.undo_id(gid))) == outline(undos)


async def test_each_client_reads_the_parents_in_each_state(
    sagas: Sagas, stock: ClientStarter
) -> None:
    client = await stock()
    gid = await undoing(sagas, client)
    for _ in range(2):
        for parent in (gid, names.undo_id(gid)):
            read = await client.manage(names.LEDGER_QUEUE, "getJob", parent)
            assert (read["id"], read["name"], read["data"]) == (parent, "order", {})
            assert (read["delay"], read["priority"]) == (0, 0)
            assert read["timestamp"] > 0
        await client.work("payments:compensation")
        await sagas.ends(gid)


async def test_a_group_of_an_earlier_release_is_read_without_a_name(
    sagas: Sagas, stock: ClientStarter
) -> None:
    client = await stock()
    order = await sagas.add(job("charge"))
    await sagas.redis.hdel(names.parent_key(sagas.prefix, order.group_id), *FIELDS)
    read = await client.manage(names.LEDGER_QUEUE, "getJob", order.group_id)
    assert (read["id"], read.get("name")) == (order.group_id, None)
    await client.work("payments")
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"


async def test_parents_that_were_deleted_are_restored_as_jobs(
    sagas: Sagas, start_client: ClientStarter
) -> None:
    client = await start_client("bullmq6")
    gid = await undoing(sagas, client)
    parents = [names.parent_key(sagas.prefix, each) for each in (gid, names.undo_id(gid))]
    before = [await sagas.redis.hmget(parent, *FIELDS) for parent in parents]
    for parent in parents:
        await sagas.redis.delete(parent)
    await sagas.redis.zrem(names.parked_key(sagas.prefix), gid)
    await sagas.driver.resync()
    assert [await sagas.redis.hmget(parent, *FIELDS) for parent in parents] == before
    await client.work("payments:compensation")
    ended = await sagas.ends(gid)
    assert (ended.state, ended.undone_count) == ("FAILED", 1)


@pytest.mark.parametrize("name", ["order-1", "{prefix}:payments:compensation:x-0-undo"])
async def test_the_name_of_a_group_is_not_taken_for_an_undo(
    sagas: Sagas, start_client: ClientStarter, name: str
) -> None:
    """If the hash of the group is deleted, the parent of the undos shows which members have one."""
    client = await start_client("bullmq6")
    jobs = [job("charge"), job("pack", "packing"), job("reserve", "inventory")]
    undos = {"charge": undo("refund"), "pack": undo("unpack")}
    order = await sagas.groups.add_group(name.format(prefix=sagas.prefix), jobs, undos)
    await client.work("payments")
    await client.work("packing", {"pack": hangs()})
    await client.heard("completed", name="charge")
    await client.heard("started", name="pack")
    await client.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, state="COMPENSATING", undo_count=1)
    await sagas.redis.delete(f"{sagas.prefix}:payments:groups:{order.group_id}")
    await sagas.driver.resync()
    await client.release("pack")
    await client.work("payments:compensation")
    # The mappings are deleted with the hash, so the undo of the second member cannot be added.
    ended = await sagas.ends(order.group_id)
    counts = (ended.undo_count, ended.undone_count, ended.undo_failed_count)
    assert (ended.state, counts) == ("FAILED_COMPENSATION", (2, 1, 1))


@pytest.mark.parametrize("flavour", NODE)
async def test_bull_board_shows_groups_and_their_trees(sagas: Sagas, client: StockClient) -> None:
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    shown = [names.LEDGER_QUEUE, "payments", "inventory"]

    async def ask(route: str, queue: str = "", job: str = "", **query: str) -> Any:
        params = {"queueName": queue, "jobId": job}
        answer = await client.board(shown, "get", route, params=params, query=query)
        assert answer["status"] == 200
        return answer["body"]

    listed = await ask(QUEUES, activeQueue=names.LEDGER_QUEUE, status="waiting-children")
    (group,) = listed["queues"][0]["jobs"]
    created = (await sagas.read(order.group_id)).created_at
    assert (group["id"], group["name"], group["timestamp"]) == (order.group_id, "order", created)

    flow = await ask(FLOW, names.LEDGER_QUEUE, order.group_id)
    root = flow["flowRoot"]
    assert flow["isFlowNode"]
    assert (root["name"], root["state"]) == ("order", "waiting-children")
    children = {(each["name"], each["queueName"], each["state"]) for each in root["children"]}
    assert children == {("charge", "payments", "waiting"), ("reserve", "inventory", "waiting")}

    # bull-board climbs from a job to its parent by `opts.parent`, which a member does not have.
    member = order.jobs[0].job_id
    assert not (await ask(FLOW, "payments", member))["isFlowNode"]
    assert (await ask(JOB, "payments", member))["job"]["groupId"] == order.group_id


@pytest.mark.parametrize("flavour", NODE)
async def test_bull_board_shows_undos_whose_queue_has_a_name(
    sagas: Sagas, client: StockClient
) -> None:
    undos = {"charge": {**undo("refund"), "queueName": "refunds"}}
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=undos)
    await client.work("payments")
    await client.heard("completed", name="charge")
    await sagas.groups.cancel_group(order.group_id)
    await sagas.reaches(order.group_id, undo_count=1)
    parent = {"queueName": names.LEDGER_QUEUE, "jobId": names.undo_id(order.group_id)}
    found = await client.board([names.LEDGER_QUEUE, "refunds"], "get", FLOW, params=parent)
    (child,) = found["body"]["flowRoot"]["children"]
    assert (child["name"], child["queueName"], child["state"]) == ("refund", "refunds", "waiting")
    await client.work("refunds")
    assert (await sagas.ends(order.group_id)).undone_count == 1
