"""People who click in bull-board on the pseudo queue: groups go on, or are given up and undone.

No driver runs during a click, so that nothing is put right before the click has had all its effect.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from jobgroup.model import names
from testbed.servers.stock import Report, StockClient, fails_for_good, hangs, returns
from testbed.support.sagas import Sagas, job, undo
from testbed.support.waiting import eventually

QUEUE = "/api/queues/:queueName"
JOB = f"{QUEUE}/:jobId"
pytestmark = pytest.mark.parametrize("flavour", ["bullmq5", "bullmq6"])


@dataclass(frozen=True)
class Click:
    """A request of bull-board's page; the first number is its answer."""

    status: int
    method: str
    route: str
    of: str = ""
    body: dict[str, Any] = field(default_factory=dict)
    # What the click needs before it: obliterating a queue is refused until it is paused.
    after: tuple["Click", ...] = ()

    async def on(self, client: StockClient, job_id: str, read_only: bool = False) -> Report:
        """Click on a job of the pseudo queue, or on the queue."""
        for click in self.after:
            await click.on(client, job_id, read_only)
        params = {"queueName": names.LEDGER_QUEUE, "jobId": job_id, "queueStatus": self.of}
        shown = [names.LEDGER_QUEUE, "payments"]
        return await client.board(
            shown, self.method, self.route, read_only, params=params, body=self.body
        )


PAUSE = Click(200, "put", f"{QUEUE}/pause")
REMOVE = Click(204, "put", f"{JOB}/clean")
REMOVE_CHILDREN = Click(200, "put", f"{JOB}/remove-unprocessed-children")
OBLITERATE = Click(200, "put", f"{QUEUE}/obliterate", body={"force": True}, after=(PAUSE,))
REFUSED = {
    "retry": Click(400, "put", f"{JOB}/retry"),
    "promote": Click(500, "put", f"{JOB}/promote"),
    "delay": Click(400, "patch", f"{JOB}/delay", body={"runAt": 1}),
}
HARMLESS = {
    "priority": Click(200, "patch", f"{JOB}/priority", body={"priority": 3}),
    "data": Click(200, "patch", f"{JOB}/update-data", body={"jobData": {"name": "other"}}),
    "add": Click(200, "post", f"{QUEUE}/add", body={"name": "x", "data": {}, "options": {}}),
    **{
        f"retry all {of}": Click(200, "put", f"{QUEUE}/retry/:queueStatus", of=of)
        for of in ("completed", "failed")
    },
    "promote all": Click(200, "put", f"{QUEUE}/promote"),
    **{
        f"clean {of}": Click(200, "put", f"{QUEUE}/clean/:queueStatus", of=of)
        for of in ("wait", "waiting-children", "active", "completed", "failed", "delayed")
    },
    "empty": Click(200, "put", f"{QUEUE}/empty"),
    "pause": PAUSE,
    "resume": Click(200, "put", f"{QUEUE}/resume"),
    "concurrency": Click(200, "put", f"{QUEUE}/concurrency", body={"concurrency": 1}),
    "rate limit": Click(200, "put", f"{QUEUE}/rate-limit", body={"max": 1, "duration": 60_000}),
    "release": Click(200, "put", f"{QUEUE}/rate-limit/release"),
    "obliterate": OBLITERATE,
}
# Those that reach a group which is on the wake-up list, or its parked entries.
STRONG = ("priority", "clean wait", "clean waiting-children", "empty", "pause", "obliterate")
# What the group of the test counts at its end: completed, failed, undone and failed undos.
UNDONE = ("FAILED", (1, 1, 1, 0))
NOT_UNDONE = ("FAILED_COMPENSATION", (1, 1, 0, 1))


async def half_done(sagas: Sagas, client: StockClient) -> str:
    """Create an order of which the first job completes; return its id."""
    order = await sagas.add(
        job("charge"), job("reserve", "inventory"), undos={"charge": undo("refund")}
    )
    await client.work("payments", {"charge": returns({"paid": 7})})
    await client.heard("completed", id=order.jobs[0].job_id)
    # `clean` leaves what is younger than 5 seconds.
    await sagas.redis.hset(names.parent_key(sagas.prefix, order.group_id), "timestamp", 1)
    await sagas.redis.zadd(names.parked_key(sagas.prefix), {order.group_id: 1}, xx=True)
    return order.group_id


async def undoing(sagas: Sagas, client: StockClient) -> str:
    """Create an order of which one job completes and one fails; return its id."""
    gid = await half_done(sagas, client)
    await client.work("inventory", {"reserve": fails_for_good()})
    await sagas.reaches(gid, state="COMPENSATING", undo_count=1)
    return gid


async def end_of(sagas: Sagas, client: StockClient, gid: str) -> tuple[str, tuple[int, ...]]:
    """Run drivers and workers; return how the group ended."""
    driver = sagas.drive(resync_seconds=0.05)
    await driver.resync()  # restores the keys that the rest of the test reads
    await client.work("inventory")
    await client.work("payments:compensation")
    ended = await sagas.ends(gid)
    await driver.resync()
    assert await sagas.read(gid) == ended

    async def at_rest() -> bool:
        lists = ("wait", "paused", "active", "prioritized", "delayed", "completed", "failed")
        ledger = names.ledger_key(sagas.prefix)
        return not await sagas.redis.exists(*(f"{ledger}:{each}" for each in lists))

    await eventually(at_rest)
    counts = (ended.completed_count, ended.failed_count, ended.undone_count)
    return ended.state, (*counts, ended.undo_failed_count)


@pytest.mark.parametrize("click", [*REFUSED, *HARMLESS])
async def test_a_group_that_waits_for_its_jobs_goes_on(
    sagas: Sagas, client: StockClient, click: str
) -> None:
    gid = await half_done(sagas, client)
    await sagas.stop()
    clicked = {**REFUSED, **HARMLESS}[click]
    assert (await clicked.on(client, gid))["status"] == clicked.status
    assert await end_of(sagas, client, gid) == ("COMPLETED", (2, 0, 0, 0))


@pytest.mark.parametrize("click", [*STRONG, "remove"])
async def test_a_group_on_the_wake_up_list_goes_on(
    sagas: Sagas, client: StockClient, click: str
) -> None:
    gid = await half_done(sagas, client)
    await sagas.stop()
    await client.work("inventory")
    await client.heard("completed", name="reserve")
    await {**HARMLESS, "remove": REMOVE}[click].on(client, gid)
    assert await end_of(sagas, client, gid) == ("COMPLETED", (2, 0, 0, 0))


@pytest.mark.parametrize("click", [REMOVE, REMOVE_CHILDREN], ids=["parent", "children"])
async def test_removing_the_jobs_of_a_group_gives_it_up_and_undoes_it(
    sagas: Sagas, client: StockClient, click: Click
) -> None:
    gid = await half_done(sagas, client)
    await sagas.stop()
    assert (await click.on(client, gid))["status"] == click.status
    assert await end_of(sagas, client, gid) == UNDONE
    assert (await sagas.read(gid)).reason == "removed from its queue"
    undone = await client.heard("started", name="refund")
    assert undone["data"]["originalReturnValue"] == {"paid": 7}


async def test_a_group_with_an_active_job_is_not_removed(sagas: Sagas, client: StockClient) -> None:
    gid = await half_done(sagas, client)
    await sagas.stop()
    await client.work("inventory", {"reserve": hangs()})
    await client.heard("started", name="reserve")
    assert (await REMOVE.on(client, gid))["status"] == 500
    await client.release("reserve")
    assert await end_of(sagas, client, gid) == ("COMPLETED", (2, 0, 0, 0))


@pytest.mark.parametrize("click", [*STRONG, "remove"])
async def test_a_group_that_is_being_undone_goes_on(
    sagas: Sagas, client: StockClient, click: str
) -> None:
    gid = await undoing(sagas, client)
    await sagas.stop()
    await {**HARMLESS, "remove": REMOVE}[click].on(client, gid)
    assert await end_of(sagas, client, gid) == UNDONE


@pytest.mark.parametrize("click", [*STRONG, "remove", "children"])
async def test_the_parent_of_undos_loses_no_undo_silently(
    sagas: Sagas, client: StockClient, click: str
) -> None:
    gid = await undoing(sagas, client)
    await sagas.stop()
    removes = {"remove": REMOVE, "children": REMOVE_CHILDREN}
    await {**HARMLESS, **removes}[click].on(client, names.undo_id(gid))
    assert await end_of(sagas, client, gid) == (NOT_UNDONE if click in removes else UNDONE)


async def test_a_completed_group_stays_completed(sagas: Sagas, client: StockClient) -> None:
    gid = await half_done(sagas, client)
    await client.work("inventory")
    await sagas.ends(gid)
    await sagas.stop()
    assert (await REMOVE.on(client, gid))["status"] == 204
    assert await end_of(sagas, client, gid) == ("COMPLETED", (2, 0, 0, 0))


@pytest.mark.parametrize("parent", ["of members", "of undos"])
async def test_a_failed_compensation_stays_one(
    sagas: Sagas, client: StockClient, parent: str
) -> None:
    gid = await undoing(sagas, client)
    await client.work("payments:compensation", {"refund": fails_for_good()})
    await sagas.reaches(gid, state="FAILED_COMPENSATION")
    await sagas.stop()
    await REMOVE.on(client, gid if parent == "of members" else names.undo_id(gid))
    assert await end_of(sagas, client, gid) == NOT_UNDONE


async def test_a_read_only_board_refuses_each_click(sagas: Sagas, client: StockClient) -> None:
    gid = await half_done(sagas, client)
    await sagas.stop()
    parent = names.parent_key(sagas.prefix, gid)
    before = await sagas.redis.hgetall(parent)
    for click in (*REFUSED.values(), *HARMLESS.values(), REMOVE, REMOVE_CHILDREN):
        assert (await click.on(client, gid, read_only=True))["status"] == 405
    assert await sagas.redis.hgetall(parent) == before
    assert await end_of(sagas, client, gid) == ("COMPLETED", (2, 0, 0, 0))


async def test_removed_undos_count_as_failed_also_if_they_had_completed(
    sagas: Sagas, client: StockClient
) -> None:
    gid = await undoing(sagas, client)
    await client.work("payments:compensation")
    assert (await sagas.ends(gid)).state == "FAILED"
    await sagas.stop()
    assert (await REMOVE.on(client, names.undo_id(gid)))["status"] == 204
    assert await end_of(sagas, client, gid) == NOT_UNDONE
