"""Several replicas: all settle groups, one writes to Kubernetes, and none after it lost the lease.

`leaseTransitions` distinguishes a takeover from a handover: it is 1 if the lease expired before
another replica acquired it, and 2 if the first replica released it. The tests measure two times:
how long there is no leader, by the times in the lease, and how long a stop takes.
"""

import signal
import threading
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from aiohttp import web

from jobgroup import JobGroups
from jobgroup.resource.kinds import JOBGROUP
from testbed.servers.operator import OperatorProcess
from testbed.servers.proxy import WRITES, Proxy
from testbed.servers.stock import fails_for_good, returns
from testbed.support.resources import manifest
from testbed.support.sagas import job
from testbed.support.stages import LOSE, PAY, PREFIX, SHIP, UNDOS, WAIT, Stage
from testbed.support.waiting import eventually, wait_for

# Documented limits, independent of the machine.
LATE = job("lose", "late")
TAKEOVER = timedelta(seconds=20)
STOP_SECONDS = 10


def leads(stage: Stage, replica: OperatorProcess) -> dict[str, Any]:
    """Wait until a replica holds the lease, and return the spec of the lease."""
    wait_for(lambda: "this replica leads" in replica.log)
    spec = stage.lease_spec()
    assert spec["holderIdentity"] == replica.server.name
    return spec


def two(stage: Stage) -> tuple[OperatorProcess, OperatorProcess]:
    """Start two replicas, of which the first leads."""
    first = stage.operator("first")
    leads(stage, first)
    second = stage.operator("second")
    wait_for(lambda: "this replica waits" in second.log)
    return first, second


def time_of(spec: dict[str, Any], field: str) -> datetime:
    return datetime.fromisoformat(spec[field])


def ran_out_before(earlier: dict[str, Any], later: dict[str, Any]) -> bool:
    """Return whether a lease was acquired after it had expired, within the documented time."""
    renewed, taken = time_of(earlier, "renewTime"), time_of(later, "acquireTime")
    end = renewed + timedelta(seconds=earlier["leaseDurationSeconds"])
    return later["leaseTransitions"] == 1 and end <= taken <= renewed + TAKEOVER


async def test_one_replica_leads_and_the_other_waits_and_both_are_healthy(stage: Stage) -> None:
    first, second = two(stage)
    assert "first leads; this replica waits" in second.log
    for replica in (first, second):
        assert replica.probe("/livez") == (200, "ok\n")
    wait_for(lambda: first.probe("/readyz") == (200, "ok\n"))
    waits = "ok: this replica waits for the Lease, and settles groups\n"
    wait_for(lambda: second.probe("/readyz") == (200, waits))
    await stage.worker()
    stage.resources.apply(manifest("order", PAY, SHIP))
    stage.resources.reaches("order", state="COMPLETED")
    assert "this replica leads" not in second.log


async def test_a_waiting_replica_can_be_stopped(stage: Stage) -> None:
    first, second = two(stage)
    second.server.signal(signal.SIGTERM)
    assert second.server.wait(STOP_SECONDS) == 0
    assert stage.lease_spec()["holderIdentity"] == "first"
    assert first.probe("/livez") == (200, "ok\n")


async def test_a_clean_stop_releases_the_lease(stage: Stage) -> None:
    operator = stage.operator()
    leads(stage, operator)
    operator.server.signal(signal.SIGTERM)
    assert operator.server.wait(STOP_SECONDS) == 0
    assert stage.lease_spec()["holderIdentity"] == ""


async def test_a_clean_stop_while_redis_is_down(stage: Stage) -> None:
    operator = stage.operator()
    leads(stage, operator)
    stage.redis.kill()
    wait_for(lambda: operator.probe("/readyz")[0] == 503)
    operator.server.signal(signal.SIGTERM)
    assert operator.server.wait(STOP_SECONDS) == 0
    assert stage.lease_spec()["holderIdentity"] == ""


async def test_a_clean_stop_hands_over(stage: Stage) -> None:
    worker = await stage.worker()
    first, second = two(stage)
    stage.resources.apply(manifest("order", PAY, WAIT))
    stage.resources.reaches("order", state="ACTIVE")
    first.server.signal(signal.SIGTERM)
    assert first.server.wait(STOP_SECONDS) == 0
    assert leads(stage, second)["leaseTransitions"] == 2
    await worker.release("wait")
    stage.resources.reaches("order", state="COMPLETED")


async def test_a_leader_that_is_killed_is_replaced(stage: Stage) -> None:
    worker = await stage.worker()
    first, second = two(stage)
    stage.resources.apply(manifest("order", PAY, WAIT))
    stage.resources.reaches("order", state="ACTIVE")
    first.server.kill()
    # Its claim ends within 4 seconds, its Lease after 15.
    wait_for(lambda: "settles and reviews groups" in second.probe("/readyz")[1])
    before = stage.lease_spec()
    await worker.release("wait")
    assert ran_out_before(before, leads(stage, second))
    stage.resources.reaches("order", state="COMPLETED")


async def test_undos_go_on_while_no_replica_leads(stage: Stage) -> None:
    asked, may_lead = list[tuple[str, str]](), threading.Event()

    def refuse(request: web.BaseRequest) -> web.Response | None:
        asked.append((request.method, request.path))
        if may_lead.is_set() or request.method not in WRITES or "/leases" not in request.path:
            return None
        said = {"kind": "Status", "code": 403, "message": "nobody may lead"}
        return web.json_response(said, status=403)

    def states() -> Counter[str]:
        found = stage.resources.user.find(JOBGROUP.name)
        return Counter(each.get("status", {}).get("state", "") for each in found)

    first = stage.operator("first")
    leads(stage, first)
    with Proxy(stage.api) as proxy:
        proxy.refuse = refuse
        second = stage.operator("second", stage.api.kubeconfig("by-proxy", proxy.url))
        wait_for(lambda: "this replica waits" in second.log)
        client = await stage.client()
        await client.work("payments", {"pay": returns(None), "lose": fails_for_good()})
        orders = [
            manifest(f"order-{n}", PAY, LOSE if n % 2 else LATE, undos=UNDOS) for n in range(200)
        ]
        await stage.send("POST", [("", order) for order in orders])
        wait_for(lambda: states() == {"ACTIVE": 100, "COMPENSATING": 100})
        first.server.kill()
        await client.work("late", {"lose": fails_for_good()})
        await client.work("payments:compensation", concurrency=20)
        async with JobGroups.connect(stage.redis.url, PREFIX) as groups:

            async def all_ended() -> bool:
                return (await groups.store.totals()).groups["FAILED"] == 200

            await eventually(all_ended)
        # Only the lease was written, in vain, and no object was read.
        assert stage.lease_spec()["holderIdentity"] == "first"
        assert states() == {"ACTIVE": 100, "COMPENSATING": 100}
        assert not any(path.endswith(("/jobgroups", "/workerpools")) for _, path in asked)
        written = {path.split("/")[2] for method, path in asked if method in WRITES}
        assert written <= {"authorization.k8s.io", "coordination.k8s.io"}
        may_lead.set()
        leads(stage, second)
        wait_for(lambda: states() == {"FAILED": 200})
    assert await stage.runs(client, name="refund") == 200


async def test_a_leader_suspended_past_its_lease_changes_nothing_when_it_resumes(
    stage: Stage,
) -> None:
    worker = await stage.worker()
    first, second = two(stage)
    stage.resources.apply(manifest("order", PAY, WAIT, undos=UNDOS))
    stage.resources.reaches("order", state="ACTIVE", progress="1/2")
    first.server.signal(signal.SIGSTOP)
    before = stage.lease_spec()
    # The first replica receives this change when it resumes.
    stage.resources.patch("order", cancel=True)
    assert ran_out_before(before, leads(stage, second))
    stage.resources.reaches("order", state="COMPENSATING", undone="1/1")
    await worker.release("wait")
    stage.resources.reaches("order", state="FAILED")
    ended = stage.resources.get("order")

    first.server.signal(signal.SIGCONT)
    assert first.server.wait() == 1
    assert f"lost the lease {stage.lease}: " in first.log
    assert stage.resources.get("order") == ended
    assert await stage.runs(worker, name="refund") == 1
    assert stage.lease_spec()["holderIdentity"] == "second"
    assert second.probe("/livez") == (200, "ok\n")


async def test_a_leader_that_hears_nothing_from_the_api_server_gives_up(stage: Stage) -> None:
    with Proxy(stage.api) as proxy:
        kubeconfig = stage.api.kubeconfig("by-proxy", proxy.url)
        first = stage.operator("first", kubeconfig)
        leads(stage, first)
        second = stage.operator("second")
        wait_for(lambda: "this replica waits" in second.log)
        proxy.swallow()
        before = stage.lease_spec()
        assert first.server.wait() == 1
        assert f"lost the lease {stage.lease}: it was not renewed in time" in first.log
        assert ran_out_before(before, leads(stage, second))
