"""Undos in queues that the mappings name."""

from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup import GroupNode, NewerFormatError, Store
from jobgroup.model import names
from testbed.servers.stock import StockClient, fails_for_good, returns
from testbed.support.fixtures import QueueNamer
from testbed.support.sagas import Sagas, job, undo

REFUND = {**undo("refund", attempts=1), "queueName": "refunds"}
UNDOS = {"charge": REFUND, "reserve": undo("restock")}


async def give_up(sagas: Sagas, client: StockClient, undos: Any = UNDOS) -> GroupNode:
    """Run an order whose first two jobs complete and whose third fails."""
    order = await sagas.add(
        job("charge"), job("reserve", "inventory"), job("ship", "shipping"), undos=undos
    )
    await client.work("payments", {"charge": returns({"tx": 1})})
    await client.work("inventory")
    await sagas.reaches(order.group_id, completed_count=2)
    await client.work("shipping", {"ship": fails_for_good()})
    await sagas.reaches(order.group_id, undo_count=len(undos))
    return order


async def test_an_undo_runs_in_the_queue_that_its_mapping_names(
    sagas: Sagas, client: StockClient
) -> None:
    order = await give_up(sagas, client)
    jobs = await sagas.groups.get_group_jobs(order.group_id)
    assert [(each.undo, each.undo_queue) for each in jobs] == [
        ("pending", "refunds"),
        ("pending", ""),
        ("", ""),
    ]
    assert [each.undoes_in for each in jobs[:2]] == ["refunds", "inventory:compensation"]
    await client.work("refunds")
    await client.work("inventory:compensation")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 2)
    started = await client.heard("started", name="refund")
    assert started["data"]["originalReturnValue"] == {"tx": 1}
    assert await sagas.keys("payments:compensation:*") == []
    await sagas.groups.remove_group(order.group_id)
    assert await sagas.keys(f"*{order.group_id}-*") == []


async def test_the_reason_of_a_failed_undo_is_read_from_its_queue(
    sagas: Sagas, client: StockClient
) -> None:
    order = await give_up(sagas, client)
    await client.work("refunds", {"refund": fails_for_good("bank closed")})
    await client.work("inventory:compensation")
    assert (await sagas.ends(order.group_id)).state == "FAILED_COMPENSATION"
    charge, *_ = await sagas.groups.get_job_details(order.group_id)
    assert charge.undo_failure is not None
    assert (charge.undo_failure.queue_name, charge.undo_failure.reason) == (
        "refunds",
        "bank closed",
    )


async def test_a_deleted_ledger_of_undos_is_restored_from_the_queues_that_are_named(
    sagas: Sagas, client: StockClient, redis: Redis
) -> None:
    order = await give_up(sagas, client)
    ledger = names.undo_id(names.parent_key(sagas.prefix, order.group_id))
    await redis.delete(ledger, f"{ledger}:dependencies")
    await sagas.driver.resync()
    await client.work("refunds")
    await client.work("inventory:compensation")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 2)


async def test_undos_are_known_after_the_mappings_were_deleted_with_the_hash(
    sagas: Sagas, client: StockClient, redis: Redis, queue: QueueNamer
) -> None:
    order = await give_up(sagas, client)
    await redis.delete(names.group_key(sagas.prefix, queue("payments"), order.group_id))
    await redis.delete(f"{sagas.prefix}:payments:groups:{order.group_id}:jobs")
    await sagas.driver.resync()
    jobs = await sagas.groups.get_group_jobs(order.group_id)
    assert [each.undo_queue for each in jobs][:2] == ["refunds", ""]
    await client.work("refunds")
    await client.work("inventory:compensation")
    assert (await sagas.ends(order.group_id)).undone_count == 2


async def test_two_jobs_may_share_a_queue_of_undos_and_it_may_be_that_of_a_job(
    sagas: Sagas, client: StockClient
) -> None:
    undos = {name: {**undo(f"undo-{name}"), "queueName": "inventory"} for name in UNDOS}
    order = await give_up(sagas, client, undos)
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.undone_count) == ("FAILED", 2)


@pytest.mark.parametrize(
    ("queue_name", "is_newer"), [("payments:compensation", False), ("refunds", True)]
)
async def test_a_driver_that_does_not_know_named_queues_leaves_such_a_group_alone(
    sagas: Sagas, first_format: Store, queue_name: str, is_newer: bool
) -> None:
    order = await sagas.add(
        job("charge"), undos={"charge": {**undo("refund"), "queueName": queue_name}}
    )
    (settled,) = await first_format.settle([order.group_id])
    assert isinstance(settled, NewerFormatError) == is_newer
