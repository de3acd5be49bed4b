"""VAL-16, 17: delayed and prioritized jobs can be members."""

from testbed.servers.stock import StockClient, fails_for_good
from testbed.support.sagas import Sagas, job


async def test_val_16_a_delayed_job_is_cancelled(sagas: Sagas, client: StockClient) -> None:
    order = await sagas.add(job("charge"), job("notify", "mails", delay=60_000))
    assert len(await client.manage("mails", "getDelayed")) == 1
    await client.work("payments", {"charge": fails_for_good()})
    assert (await sagas.ends(order.group_id)).cancelled_count == 1
    assert await client.manage("mails", "getDelayed") == []
    assert await sagas.statuses(order.group_id) == ["failed", "cancelled"]


async def test_val_17_a_prioritized_job_is_cancelled(sagas: Sagas, client: StockClient) -> None:
    order = await sagas.add(job("charge"), job("notify", "mails", priority=5))
    assert len(await client.manage("mails", "getPrioritized")) == 1
    await client.work("payments", {"charge": fails_for_good()})
    assert (await sagas.ends(order.group_id)).cancelled_count == 1
    assert await client.manage("mails", "getPrioritized") == []
    assert await sagas.statuses(order.group_id) == ["failed", "cancelled"]


async def test_val_16_a_group_completes_with_its_delayed_job(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("notify", delay=100))
    await client.work("payments")
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"


async def test_val_17_prioritized_jobs_run_in_their_order(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(
        job("third", priority=9), job("second", priority=1), job("first"), job("last", priority=10)
    )
    await client.work("payments")
    assert (await sagas.ends(order.group_id)).state == "COMPLETED"
    started = [report["name"] for report in client.reports if report["event"] == "started"]
    assert started == ["first", "second", "third", "last"]
