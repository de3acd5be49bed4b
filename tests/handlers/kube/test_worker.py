"""A worker queues an object again after the wait that its reconcile returns, or after an error."""

import logging

import pytest

from handlers.kube.client import ApiError, StatusRefusedError
from handlers.kube.leader import NotLeaderError
from handlers.kube.refs import Ref
from handlers.kube.worker import process
from handlers.kube.workqueue import WorkQueue
from jobgroup.store.connection import RedisError

REF = Ref("shop", "order", "u")


async def taken() -> WorkQueue[Ref]:
    """Return a queue from which an object was taken that had failed before."""
    queue = WorkQueue[Ref]()
    queue.add(REF)
    queue.add_rate_limited(REF)
    assert await queue.get() == REF
    return queue


async def returns(requeue_after: float | None) -> float | None:
    return requeue_after


async def fails(error: Exception) -> float | None:
    raise error


async def test_an_object_without_a_wait_is_not_queued_again() -> None:
    queue = await taken()
    await process(queue, REF, returns(None))
    assert len(queue) == 0
    assert not queue.is_dirty(REF)


@pytest.mark.parametrize(("wait", "due"), [(0.0, [REF]), (3600.0, [])])
async def test_an_object_is_queued_after_the_wait_that_its_reconcile_returned(
    wait: float, due: list[Ref]
) -> None:
    queue = await taken()
    await process(queue, REF, returns(wait))
    assert len(queue) == 1
    assert queue.get_due() == due


@pytest.mark.parametrize(
    ("error", "message", "least"),
    [
        (ApiError(429, "busy", retry_after=7), "429: busy; retrying in 7.0 s", 6.9),
        (ApiError(500, "broken"), "500: broken; retrying in 0.", 0.1),
        (
            StatusRefusedError(422, "not valid"),
            "the API server refused the status of JobGroup order: 422: not valid; retrying in 0.",
            0.1,
        ),
        (RedisError("away"), "away; retrying in 0.", 0.1),
        (NotLeaderError("lost the lease"), "lost the lease; retrying in 0.", 0.1),
        (ValueError("a defect"), "unexpected error; retrying in 0.", 0.1),
    ],
)
async def test_an_object_is_retried_after_an_error(
    error: Exception, message: str, least: float, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await taken()
    with caplog.at_level(logging.WARNING):
        await process(queue, REF, fails(error))
    assert message in caplog.text
    assert queue.is_dirty(REF)
    assert queue.get_due() == []
    assert queue.seconds_until_due() > least


async def test_a_refused_status_is_logged_as_an_error_and_retried_ever_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = await taken()
    waits = []
    for _ in range(4):
        await process(queue, REF, fails(StatusRefusedError(422, "not valid")))
        waits.append(queue.seconds_until_due())
        assert await queue.get() == REF
    assert waits == sorted(waits)
    assert {record.levelname for record in caplog.records} == {"ERROR"}
