"""VAL-04, 05: a group completes if and only if all its jobs complete."""

import asyncio

from testbed.servers.stock import StockClient, hangs
from testbed.support.fixtures import ClientStarter
from testbed.support.sagas import GROUP_EVENTS, Sagas, job

ORDER = (job("charge", "payments"), job("reserve", "inventory"), job("notify", "mails"))


async def test_val_04_a_group_completes_when_all_its_jobs_have(
    sagas: Sagas, client: StockClient
) -> None:
    await client.listen("payments", *GROUP_EVENTS)
    order = await sagas.add(*ORDER)
    for queue in ("payments", "inventory"):
        await client.work(queue)
    partly = await sagas.reaches(order.group_id, completed_count=2)
    assert partly.state == "ACTIVE"

    await client.work("mails")
    ended = await sagas.ends(order.group_id)
    assert (ended.state, ended.completed_count) == ("COMPLETED", 3)
    assert await sagas.told(client, "payments") == [
        ("group:completed", {"groupId": order.group_id, "groupName": "order"})
    ]


async def test_val_05_a_group_completes_once_under_concurrent_workers(
    sagas: Sagas, stock: ClientStarter
) -> None:
    orders = [await sagas.add(*ORDER) for _ in range(20)]
    clients = [await stock() for _ in ORDER]
    for client, member in zip(clients, ORDER, strict=True):
        await client.work(member["queueName"], {member["name"]: hangs()}, concurrency=20)
    await clients[0].listen("payments", *GROUP_EVENTS)
    for order in orders:
        for client, made in zip(clients, order.jobs, strict=True):
            await client.heard("started", id=made.job_id)

    await asyncio.gather(
        *(client.release(member["name"]) for client, member in zip(clients, ORDER, strict=True))
    )
    for order in orders:
        assert (await sagas.ends(order.group_id)).state == "COMPLETED"
    told = await sagas.told(clients[0], "payments")
    assert sorted(fields["groupId"] for _, fields in told) == sorted(o.group_id for o in orders)
    assert {event for event, _ in told} == {"group:completed"}
