"""The Python API without workers: waiting, events, many groups at once."""

import asyncio

import pytest
from redis.asyncio import Redis

from jobgroup import (
    GroupExistsError,
    GroupNotFoundError,
    GroupRemovedError,
    InvalidGroupStateError,
    JobGroups,
)
from testbed.support.sagas import Sagas

JOBS = [{"name": "pay", "queueName": "payments"}]


async def test_waiting_returns_at_once_for_an_ended_group(sagas: Sagas) -> None:
    node = await sagas.groups.add_group("order", JOBS)
    await sagas.groups.cancel_group(node.group_id)
    assert (await sagas.groups.wait_for_group(node.group_id, 60)).state == "FAILED"


async def test_waiting_ends_with_the_group(sagas: Sagas) -> None:
    node = await sagas.groups.add_group("order", JOBS)
    waiting = asyncio.create_task(sagas.groups.wait_for_group(node.group_id, 60))
    await asyncio.sleep(0)
    await sagas.groups.cancel_group(node.group_id)
    assert (await waiting).reason == "cancelled"


async def test_waiting_for_a_missing_group_and_waiting_too_long(sagas: Sagas) -> None:
    with pytest.raises(GroupNotFoundError, match="Group nobody not found"):
        await sagas.groups.wait_for_group("nobody")
    node = await sagas.groups.add_group("order", JOBS)
    with pytest.raises(TimeoutError):
        await sagas.groups.wait_for_group(node.group_id, 0.01)


async def test_only_group_events_are_yielded(sagas: Sagas) -> None:
    node = await sagas.groups.add_group("order", JOBS)
    # QueueEventsProducer of BullMQ adds events with any names.
    for kind in ("group:progress", "group:failed"):
        await sagas.redis.xadd(f"{sagas.prefix}:payments:events", {"event": kind})
    await sagas.groups.cancel_group(node.group_id)
    stream = sagas.groups.events("payments", last_id="0-0")
    event = await anext(stream)
    assert (event.type, event.group_id, event.group_name) == (
        "group:failed",
        node.group_id,
        "order",
    )
    assert event.fields["state"] == "FAILED"


async def test_a_refused_group_does_not_affect_others(sagas: Sagas) -> None:
    group = {"name": "order", "jobs": JOBS, "group_id": "gone"}
    await sagas.groups.add_groups([group])
    await sagas.groups.cancel_group("gone")
    await sagas.groups.remove_group("gone")
    refused, made = await sagas.groups.add_groups([group, {"name": "order", "jobs": JOBS}])
    assert isinstance(refused, GroupRemovedError)
    assert not isinstance(made, Exception)


async def test_a_group_that_is_written_in_another_way_is_the_same_group(sagas: Sagas) -> None:
    job = {**JOBS[0], "data": {"order": "124", "amount": 1}}
    node = await sagas.groups.add_group("order", [job], group_id="order-124")
    rewritten = {"data": {"amount": 1.0, "order": "124"}, "opts": {}, **JOBS[0]}
    again = await sagas.groups.add_group("order", [rewritten], {}, group_id="order-124")
    assert again == node
    another = {**JOBS[0], "data": {"order": "124", "amount": 1.5}}
    with pytest.raises(GroupExistsError, match="already exists with another definition"):
        await sagas.groups.add_group("order", [another], group_id="order-124")


async def test_a_running_group_is_not_removed(sagas: Sagas) -> None:
    node = await sagas.groups.add_group("order", JOBS)
    with pytest.raises(InvalidGroupStateError, match="Cannot remove group in state ACTIVE"):
        await sagas.groups.remove_group(node.group_id)
    with pytest.raises(GroupNotFoundError):
        await sagas.groups.remove_group("nobody")


async def test_a_missing_group_has_no_jobs(redis: Redis, redis_url: str, prefix: str) -> None:
    async with JobGroups.connect(redis_url, prefix) as groups:
        with pytest.raises(GroupNotFoundError):
            await groups.get_group_jobs("nobody")
        assert await groups.get_group_state("nobody") is None


async def test_more_concurrent_calls_than_connections(sagas: Sagas) -> None:
    groups = sagas.groups
    nodes = await asyncio.gather(*(groups.add_group("order", JOBS) for _ in range(250)))
    found = await asyncio.gather(*(groups.get_group_state(node.group_id) for node in nodes))
    assert [state.id for state in found if state] == [node.group_id for node in nodes]
