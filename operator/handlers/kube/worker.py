"""What all controllers have in common, and how a worker processes one object of a work queue.

Afterwards the worker queues the object again: after the wait that the reconcile returned, or with
the delay of the rate limiter after an error.
"""

import logging
from collections.abc import Awaitable
from typing import Any, Protocol

from handlers.kube.client import ApiError, StatusRefusedError
from handlers.kube.leader import NotLeaderError
from handlers.kube.refs import Ref
from handlers.kube.workqueue import WorkQueue
from jobgroup.store.connection import RedisError

logger = logging.getLogger(__name__)


class Controller(Protocol):
    """The controller of one kind."""

    def enqueue(self, ref: Ref, body: dict[str, Any]) -> None:
        """Reconcile an object that was added or modified."""

    def forget(self, ref: Ref) -> None:
        """Drop an object that was deleted."""


async def process(queue: WorkQueue[Ref], ref: Ref, reconcile: Awaitable[float | None]) -> None:
    """Await the reconcile of an object that was taken from a queue; do not raise its errors.

    `reconcile` returns after how many seconds to reconcile again, or None.
    """
    try:
        requeue_after = await reconcile
    except StatusRefusedError as error:
        wait = queue.add_rate_limited(ref)
        refusal = "the API server refused the status of %s %s: %s; retrying in %.1f s"
        logger.error(refusal, ref.kind, ref.name, error, wait, extra=ref.context)
    except ApiError as error:
        wait = queue.add_rate_limited(ref, error.retry_after)
        logger.warning("%s; retrying in %.1f s", error, wait, extra=ref.context)
    except (RedisError, NotLeaderError) as error:
        wait = queue.add_rate_limited(ref)
        logger.warning("%s; retrying in %.1f s", error, wait, extra=ref.context)
    except Exception:
        wait = queue.add_rate_limited(ref)
        logger.exception("unexpected error; retrying in %.1f s", wait, extra=ref.context)
    else:
        queue.forget(ref)
        if requeue_after is not None:
            queue.add_after(ref, requeue_after)
    queue.done(ref)
