"""Jobs that other producers add with the id, the options or the parent of a member."""

import pytest

from testbed.servers.stock import StockClient, fails_for_good, hangs, returns
from testbed.support.fixtures import ClientStarter, QueueNamer
from testbed.support.sagas import Sagas, job, undo

REFUND = {"charge": undo("refund", attempts=1)}


@pytest.mark.parametrize("flavour", ["bullmq5", "bullmq6"])
async def test_a_copy_of_a_pending_member_did_not_complete(
    sagas: Sagas, start_client: ClientStarter, flavour: str, queue: QueueNamer
) -> None:
    """To change the data of a job, people remove it and add a copy with its options."""
    client = await start_client(flavour)
    jobs = job("charge", queue("payments")), job("reserve", "inventory")
    order = await sagas.add(*jobs, undos=REFUND)
    charge = order.jobs[0].job_id
    await client.manage("payments", "pause")
    copy = await client.manage("payments", "toJSON", job=charge)
    await client.manage("payments", "remove", job=charge)
    await client.add("payments", copy["name"], copy["data"], **{**copy["opts"], "jobId": charge})
    await client.work("inventory", {"reserve": fails_for_good()})
    ended = await sagas.ends(order.group_id)
    assert (ended.completed_count, ended.undo_count) == (0, 0)


@pytest.mark.parametrize("flavour", ["bullmq6"])
async def test_a_copy_with_the_parent_takes_the_place_of_a_member(
    sagas: Sagas, start_client: ClientStarter, queue: QueueNamer, flavour: str
) -> None:
    client = await start_client(flavour)
    await sagas.stop()
    jobs = job("charge", queue("payments")), job("reserve", "inventory")
    order = await sagas.add(*jobs, undos=REFUND)
    charge = order.jobs[0].job_id
    parent = {"id": order.group_id, "queue": f"{sagas.prefix}:_jobgroups"}
    await client.manage("payments", "remove", job=charge)
    await client.add("payments", "charge", jobId=charge, parent=parent)
    sagas.drive(resync_seconds=0.1)
    await client.work("inventory", {"reserve": fails_for_good()})
    ended = await sagas.ends(order.group_id)
    assert (ended.cancelled_count, ended.undo_count) == (1, 0)
    await sagas.stop()  # it would take the queue that is deleted below for one that people deleted


async def test_a_copy_of_a_cancelled_member_is_not_counted(
    sagas: Sagas, client: StockClient, queue: QueueNamer
) -> None:
    jobs = job("charge", queue("payments")), job("reserve", "inventory"), job("ship", "shipping")
    order = await sagas.add(*jobs, undos=REFUND)
    await client.work("shipping", {"ship": hangs(returns("x"))})
    await client.heard("started", name="ship")
    await client.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(order.group_id, cancelled_count=1)
    parent = {"id": order.group_id, "queue": f"{sagas.prefix}:_jobgroups"}
    await client.add("payments", "charge", jobId=order.jobs[0].job_id, parent=parent)
    await client.work("payments")
    await client.heard("completed", name="charge")
    await client.release("ship")
    ended = await sagas.ends(order.group_id)
    counts = ended.completed_count, ended.failed_count, ended.cancelled_count
    assert counts == (1, 1, 1)


async def test_children_of_other_producers_are_not_counted(
    sagas: Sagas, client: StockClient, queue: QueueNamer
) -> None:
    await sagas.stop()
    order = await sagas.add(job("charge"), job("reserve", "inventory"))
    parent = {"id": order.group_id, "queue": f"{sagas.prefix}:_jobgroups"}
    for n in range(3):
        await client.add(queue("others"), f"other-{n}", parent=parent)
    await client.work("others")
    for n in range(3):
        await client.heard("completed", name=f"other-{n}")
    state = await sagas.groups.get_group_state(order.group_id)
    assert state is not None
    assert (state.state, state.completed_count) == ("ACTIVE", 0)


async def test_a_job_with_the_id_of_a_set_blocks_no_group(
    sagas: Sagas, client: StockClient, queue: QueueNamer
) -> None:
    await client.add(queue("payments"), "foreign", jobId="waiting-children", delay=3_600_000)
    order = await sagas.add(job("charge"), job("reserve", "inventory"), undos=REFUND)
    await client.work("inventory", {"reserve": fails_for_good()})
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.cancelled_count) == ("FAILED", 1)
    await sagas.groups.remove_group(order.group_id)
