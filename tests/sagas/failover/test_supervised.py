"""A supervised worker, in front of a Redis that does not fail."""

from redis.asyncio import Redis

from testbed.servers.stock import hangs
from testbed.support.sagas import Sagas, job
from testbed.support.waiting import eventually
from tests.sagas.failover.supervised import SupervisedWorker


async def test_a_restarted_worker_keeps_its_reports_and_names_the_jobs_that_it_abandoned(
    sagas: Sagas, redis: Redis, redis_url: str
) -> None:
    queues = {"payments": {"charge": hangs()}, "inventory": {}}
    async with SupervisedWorker("bullmq6", redis_url, sagas.prefix, queues) as worker:
        order = await sagas.add(job("charge"))
        stock = await sagas.add(job("reserve", "inventory"))

        async def is_under_way() -> bool:
            seen = {(each["event"], each.get("name")) for each in worker.reports}
            return {("started", "charge"), ("completed", "reserve")} <= seen

        await eventually(is_under_way)
        assert not worker.has_given_up
        assert not worker.is_silent
        await worker.restart()
        assert await is_under_way()
        assert worker.abandoned == {("charge", order.jobs[0].job_id)}
        assert worker.restarts == 1
    await redis.delete(f"{order.jobs[0].job_key}:lock")
    await sagas.groups.cancel_group(order.group_id)
    await sagas.groups.store.settle([order.group_id], grace=0)
    assert (await sagas.read(order.group_id)).ended
    await sagas.driver.drain()
    assert (await sagas.read(stock.group_id)).ended
