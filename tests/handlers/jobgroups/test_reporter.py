"""The first status of a group: at once, or after more urgent work, but never twice for one end.

An object in the work queue stands for the others of a burst.
"""

from typing import Any

import pytest
from redis import exceptions

from handlers.kube.refs import Ref
from jobgroup.model import names
from jobgroup.model.snapshot import Settled
from jobgroup.resource import decisions
from jobgroup.resource.conditions import to_rfc3339
from testbed.servers.stock import StockClient
from testbed.support.resources import manifest
from testbed.support.stages import LOSE, PAY, PREFIX, SHIP, UNDOS, Stage
from tests.handlers.jobgroups.reconcilers import Replica
from tests.resources.looking import HOUR

OTHER = Ref("shop", "other", "1234")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Postpone first reports for longer than any test."""
    monkeypatch.setattr(decisions, "FIRST_REPORT_MS", HOUR)


async def begin(replica: Replica, *jobs: dict[str, Any], busy: bool = True) -> str:
    """Create an object and its group while another object waits, or not; return the uid."""
    if busy:
        replica.queue.add(OTHER)
    replica.resources.apply(manifest("order", *jobs, undos=UNDOS))
    await replica.reconcile()
    return str(replica.resources.get("order")["metadata"]["uid"])


async def settle(replica: Replica, uid: str) -> str:
    """Settle a group as the driver does, and return its state."""
    (settled,) = await replica.store.settle([uid])
    assert isinstance(settled, Settled)
    return settled.state


async def undo(replica: Replica, worker: StockClient, uid: str) -> None:
    """Fail a job of the group, and undo its completed job."""
    await worker.heard("failed", name="lose")
    assert await settle(replica, uid) == "COMPENSATING"
    await worker.heard("completed", id=f"{uid}-0-undo")
    assert await settle(replica, uid) == "FAILED"


async def unreachable(*_: Any, **__: Any) -> None:
    raise exceptions.ConnectionError


def states(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the states that are written from now on."""
    put, written = replica.api.put_status, list[str]()

    async def record(body: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        written.append(status["state"])
        return await put(body, status)

    monkeypatch.setattr(replica.api, "put_status", record)
    return written


async def test_without_other_objects_a_group_is_reported_when_it_is_created(
    replica: Replica,
) -> None:
    await begin(replica, PAY, busy=False)
    assert replica.api.writes == {"metadata": 1, "status": 1}
    assert replica.resources.status("order")["state"] == "ACTIVE"


async def test_a_group_that_ends_while_other_objects_wait_costs_two_writes(
    replica: Replica, stage: Stage
) -> None:
    uid = await begin(replica, PAY, SHIP)
    assert replica.api.writes == {"metadata": 1}
    assert "state" not in replica.resources.status("order")
    worker = await stage.worker()
    for name in ("pay", "ship"):
        await worker.heard("completed", name=name)
    assert await settle(replica, uid) == "COMPLETED"
    await replica.reconcile()
    assert replica.api.writes == {"metadata": 1, "status": 1}
    status = replica.resources.status("order")
    key = names.group_key(PREFIX, "payments", uid)
    created = int(stage.store.hget(key, "createdAt") or 0)
    assert (status["state"], status["progress"]) == ("COMPLETED", "2/2")
    assert status["startedAt"] == status["events"][0]["time"] == to_rfc3339(created)
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Ready": "True",
        "Finished": "True",
        "Succeeded": "True",
    }
    assert replica.resources.events("order") == []


async def test_a_group_that_still_runs_after_its_time_is_reported(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(replica, PAY)
    monkeypatch.setattr(decisions, "FIRST_REPORT_MS", 0)
    await replica.reconcile()
    assert replica.resources.status("order")["state"] == "ACTIVE"


async def test_a_postponed_report_is_written_once_the_queue_is_idle(replica: Replica) -> None:
    await begin(replica, PAY)
    for expected in (OTHER.name, "order"):
        ref = await replica.queue.get()
        assert ref.name == expected
        if ref != OTHER:
            await replica.reconcile()
        replica.queue.done(ref)
    assert replica.resources.status("order")["state"] == "ACTIVE"


async def test_a_group_that_was_undone_while_other_objects_wait_was_compensating(
    replica: Replica, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = states(replica, monkeypatch)
    uid = await begin(replica, PAY, LOSE)
    await undo(replica, await stage.worker(), uid)
    await replica.reconcile()
    assert written == ["COMPENSATING", "FAILED"]
    reasons = [reason for _, reason, _ in replica.resources.events("order")]
    assert sorted(reasons) == ["Compensated", "Compensating", "Failed"]


@pytest.mark.parametrize("is_unreachable_first", [False, True])
async def test_a_group_that_redis_loses_before_its_first_report_is_not_created_again(
    replica: Replica, stage: Stage, monkeypatch: pytest.MonkeyPatch, is_unreachable_first: bool
) -> None:
    uid = await begin(replica, PAY)
    if is_unreachable_first:
        with monkeypatch.context() as outage:
            outage.setattr(replica.store, "read_with", unreachable)
            with pytest.raises(exceptions.ConnectionError):
                await replica.reconcile()
    for key in stage.store.scan_iter(f"*{uid}*"):
        stage.store.delete(key)
    await replica.reconcile()
    replica.resources.stalls("order", "RedisStateLost")
    # The status protects the group also from the next operator.
    assert replica.resources.status("order")["state"] == "ACTIVE"
    assert list(stage.store.scan_iter(f"*{uid}*")) == []
