"""VAL-10, 11, 12: a running group can be cancelled, an ended one cannot."""

import pytest

from jobgroup import GroupNotFoundError, InvalidGroupStateError
from testbed.servers.stock import StockClient
from testbed.support.sagas import GROUP_EVENTS, Sagas, job, undo

HOUR = 3_600_000


async def test_val_10_cancelling_undoes_completed_jobs(sagas: Sagas, client: StockClient) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(
        job("charge", "payments"),
        job("reserve", "inventory"),
        job("notify", "inventory", delay=HOUR),
        undos={"charge": undo("refund"), "reserve": undo("restock")},
    )
    await client.work("payments")
    await sagas.reaches(order.group_id, completed_count=1)
    cancelled = await sagas.groups.cancel_group(order.group_id)
    assert (cancelled.state, cancelled.cancelled_count) == ("COMPENSATING", 2)
    assert await client.manage("inventory", "getWaiting") == []
    assert await client.manage("inventory", "getDelayed") == []
    (refund,) = await client.manage("payments:compensation", "getWaiting")
    assert refund["data"]["originalJobId"] == order.jobs[0].job_id
    with pytest.raises(
        InvalidGroupStateError, match=r"^Cannot cancel group in state COMPENSATING$"
    ):
        await sagas.groups.cancel_group(order.group_id)

    await client.work("payments:compensation")
    assert (await sagas.ends(order.group_id)).state == "FAILED"
    (event, fields), (last, _) = await sagas.told(client, "payments")
    assert (event, last) == ("group:compensating", "group:failed")
    assert (fields["failedJobId"], fields["reason"]) == ("", "cancelled")


async def test_val_11_cancelling_before_anything_completed_undoes_nothing(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), job("reserve"), job("notify"))
    assert len(await client.manage("payments", "getWaiting")) == 3
    cancelled = await sagas.groups.cancel_group(order.group_id)
    assert (cancelled.state, cancelled.cancelled_count) == ("FAILED", 3)
    assert await client.manage("payments", "getWaiting") == []
    assert await sagas.keys("*:compensation:*") == []
    with pytest.raises(InvalidGroupStateError, match=r"^Cannot cancel group in state FAILED$"):
        await sagas.groups.cancel_group(order.group_id)


async def test_val_12_a_completed_group_cannot_be_cancelled(
    sagas: Sagas, client: StockClient
) -> None:
    order = await sagas.add(job("charge"), undos={"charge": undo("refund")})
    await client.work("payments")
    await sagas.ends(order.group_id)
    with pytest.raises(InvalidGroupStateError, match=r"^Cannot cancel a completed group$"):
        await sagas.groups.cancel_group(order.group_id)
    assert (await sagas.read(order.group_id)).state == "COMPLETED"


async def test_val_12_a_missing_group_cannot_be_cancelled(sagas: Sagas) -> None:
    with pytest.raises(GroupNotFoundError, match=r"^Group nonexistent not found$"):
        await sagas.groups.cancel_group("nonexistent")
