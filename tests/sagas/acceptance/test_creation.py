"""VAL-01, 02, 03, 18: a group is created with all its jobs, or not at all."""

import json

import pytest

from jobgroup import (
    EmptyGroupError,
    JobInFlowError,
    JobInGroupError,
    UnknownCompensationError,
)
from testbed.servers.stock import StockClient
from testbed.support.sagas import Sagas, job, undo


async def test_val_01_a_group_is_created_with_all_its_jobs(
    sagas: Sagas, client: StockClient
) -> None:
    undos = {"charge": undo("refund"), "reserve": undo("restock"), "notify": undo("retract")}
    jobs = [job("charge", "payments"), job("reserve", "inventory"), job("notify", "mails")]
    node = await sagas.groups.add_group("order-123", jobs, undos)
    assert (node.group_name, len(node.jobs)) == ("order-123", 3)

    stored = await sagas.redis.hgetall(f"{sagas.prefix}:payments:groups:{node.group_id}")
    assert (stored["state"], stored["totalJobs"]) == ("ACTIVE", "3")
    assert json.loads(stored["compensation"]) == undos
    for member, defined in zip(node.jobs, jobs, strict=True):
        found = await client.manage(member.queue_name, "getJob", member.job_id)
        assert (found["name"], found["data"]) == (defined["name"], defined["data"])
        assert found["opts"]["group"] == {"id": node.group_id, "name": "order-123"}


async def test_val_02_a_group_without_jobs_is_refused(sagas: Sagas) -> None:
    with pytest.raises(EmptyGroupError, match=r"^Group must contain at least one job$"):
        await sagas.groups.add_group("order", [])
    assert await sagas.keys() == []


async def test_val_03_an_undo_for_a_missing_job_is_refused(sagas: Sagas) -> None:
    with pytest.raises(
        UnknownCompensationError, match=r'^Compensation key "chrage" does not match any job name$'
    ):
        await sagas.add(job("charge"), undos={"chrage": undo("refund")})
    assert await sagas.keys() == []


async def test_val_18_a_job_of_a_flow_is_refused(sagas: Sagas) -> None:
    child = job("charge", parent={"id": "1", "queue": "bull:flows"})
    with pytest.raises(JobInFlowError, match=r"^A job cannot belong to both a group and a flow$"):
        await sagas.add(job("reserve"), child)
    assert await sagas.keys() == []


async def test_val_18_a_job_of_another_group_is_refused(sagas: Sagas) -> None:
    with pytest.raises(JobInGroupError, match=r'^Job "charge" already belongs to a group$'):
        await sagas.add(job("reserve"), job("charge", group={"id": "1", "name": "other"}))
    assert await sagas.keys() == []
