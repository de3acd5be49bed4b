"""The steps of the histories report in which way a version does something, and their errors."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from testbed.servers.stock import FLAVOURS
from tests.sagas.histories.ground import AnyQueue, stock_queues
from tests.sagas.histories.node_queue import NodeClient, NodeError, NodeQueue

nodes = pytest.mark.parametrize("stock_queue", ["bullmq5", "bullmq6"], indirect=True)


@pytest.fixture(params=FLAVOURS)
async def stock_queue(
    request: pytest.FixtureRequest, redis: Redis, redis_url: str, prefix: str
) -> AsyncIterator[AnyQueue]:
    with stock_queues(request.param, redis, redis_url, prefix) as queues:
        yield queues["a"]
        await queues["a"].delete_keys()


async def test_a_retry_returns_whether_it_reset_the_attempts(
    stock_queue: AnyQueue, redis: Redis, prefix: str
) -> None:
    await stock_queue.add("x")
    holder = await stock_queue.take("token")
    assert holder is not None
    await holder.complete()
    was_reset = await stock_queue.retry("x", "completed", reset=True)
    assert await redis.hexists(f"{prefix}:a:x", "atm") == (not was_reset)


async def test_a_pause_returns_whether_it_moved_the_list(
    stock_queue: AnyQueue, redis: Redis, prefix: str
) -> None:
    await stock_queue.add("x")
    moved = await stock_queue.pause(paused=True, moves_list=True)
    assert await redis.llen(f"{prefix}:a:paused") == moved
    assert await redis.llen(f"{prefix}:a:wait") == (not moved)


async def test_a_removal_of_orphans_returns_whether_the_version_has_one(
    stock_queue: AnyQueue, redis: Redis, prefix: str
) -> None:
    await stock_queue.add("x")
    await redis.delete(f"{prefix}:a:wait")
    removed = await stock_queue.remove_orphans()
    assert await redis.exists(f"{prefix}:a:x") == (not removed)


@nodes
async def test_the_process_uses_the_version_of_its_name(
    request: pytest.FixtureRequest, stock_queue: AnyQueue, redis: Redis, prefix: str
) -> None:
    await stock_queue.drain()
    version = await redis.hget(f"{prefix}:a:meta", "version")
    major = request.node.callspec.params["stock_queue"].removeprefix("bullmq")
    assert str(version).startswith(f"bullmq:{major}.")


@nodes
async def test_a_step_raises_the_error_of_its_process_with_the_stack(stock_queue: AnyQueue) -> None:
    await stock_queue.add("x")
    with pytest.raises(NodeError, match=r"not in the failed state(.|\n)*node_queue\.mjs"):
        await stock_queue.retry("x", "failed")


async def test_a_step_raises_an_error_if_its_process_has_ended(redis: Redis, prefix: str) -> None:
    client = NodeClient("no such package", "redis://nowhere", prefix)
    with pytest.raises(NodeError, match="ended with code 1"):
        await NodeQueue(client, redis, prefix, "a").take("token")
    client.close()
