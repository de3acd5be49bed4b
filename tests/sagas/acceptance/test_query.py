"""VAL-13, 14, 15: the current state of a group and of its jobs can be read."""

from jobgroup import GroupJob
from testbed.servers.stock import StockClient, hangs
from testbed.support.sagas import Sagas, job


async def test_val_13_the_state_of_a_group(sagas: Sagas, client: StockClient) -> None:
    order = await sagas.add(
        job("charge", "payments"), job("reserve", "inventory"), job("notify", "mails")
    )
    await client.work("payments")
    await client.work("inventory")
    await client.work("mails", {"notify": hangs()})
    await client.heard("started", name="notify")
    await sagas.reaches(order.group_id, completed_count=2)
    found = await sagas.groups.get_group_state(order.group_id)
    assert found is not None
    assert found.completed_count == 2
    assert (found.id, found.name, found.state) == (order.group_id, "order", "ACTIVE")
    assert (found.total_jobs, found.failed_count, found.cancelled_count) == (3, 0, 0)
    assert found.updated_at >= found.created_at > 0
    await client.release("notify")
    await sagas.ends(order.group_id)


async def test_val_14_the_state_of_a_missing_group(sagas: Sagas) -> None:
    assert await sagas.groups.get_group_state("nonexistent") is None


async def test_val_15_the_jobs_of_a_group(sagas: Sagas, client: StockClient) -> None:
    order = await sagas.add(
        job("charge", "payments"), job("reserve", "inventory"), job("notify", "mails")
    )
    await client.work("payments")
    await client.work("inventory", {"reserve": hangs()})
    await client.heard("started", name="reserve")
    await sagas.reaches(order.group_id, completed_count=1)
    group, prefix = order.group_id, sagas.prefix
    assert await sagas.groups.get_group_jobs(group) == [
        GroupJob(f"{group}-0", f"{prefix}:payments:{group}-0", "completed", "payments"),
        GroupJob(f"{group}-1", f"{prefix}:inventory:{group}-1", "active", "inventory"),
        GroupJob(f"{group}-2", f"{prefix}:mails:{group}-2", "pending", "mails"),
    ]
    await client.work("mails")
    await client.release("reserve")
    await sagas.ends(group)
