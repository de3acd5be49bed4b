"""The example as it stands: an order that is fulfilled, and one that is refused and undone.

The Deployment that works on refunds has no pods until a payment has to be refunded: a
WorkerPool scales it up then, and down again afterwards. Once with workers in Node, once in Python.
"""

import json

import pytest

from jobgroup.resource.kinds import WORKERPOOL
from testbed.cluster.installation import REDIS_SECRET
from testbed.support import examples
from tests.e2e.stage import Stage


@pytest.fixture
def shop(stage: Stage) -> Stage:
    """Provide what the example expects: the URL of a Redis, workers, and empty books."""
    stage.user.create(REDIS_SECRET)
    stage.redis("DEL", *examples.book_keys().values())
    stage.apply_example("workers.yaml")
    return stage


def books(shop: Stage) -> dict[str, dict[str, str]]:
    """Return the content of the shop's books."""
    return {
        book: json.loads(shop.redis("--json", "HGETALL", key))
        for book, key in examples.book_keys().items()
    }


def test_an_order_is_fulfilled(shop: Stage) -> None:
    shop.apply_example("order.yaml")

    shop.sees("order-123", state="COMPLETED", progress="3/3")
    assert books(shop) == examples.BOOKS


@pytest.mark.parametrize("flavour", ["node", "python"])
def test_a_refused_order_is_undone_by_workers_that_slept(shop: Stage, flavour: str) -> None:
    shop.apply_example(f"deployment-{flavour}.yaml")
    # The example's cooldown of a minute would make this story slow.
    shop.user.patch(WORKERPOOL.name, "payments-undo", {"spec": {"cooldownSeconds": 3}})
    # A Deployment without a number of replicas begins with one.
    undoers_sleep(shop)

    shop.apply_example("order-refused.yaml")

    shop.sees("order-124", state="FAILED", undone="2/2")
    assert shop.event_reasons("order-124") >= {"Failed", "Compensating", "Compensated"}
    assert shop.event_reasons("payments-undo") >= {"Scaled"}
    assert not any(books(shop).values())
    undoers_sleep(shop)


def undoers_sleep(shop: Stage) -> None:
    """Wait until the workers that undo payments have no pods."""
    shop.sleeps("Deployment", "payments-undo-worker")
    shop.user.wait_gone("Pod", label_selector="app=payments-undo-worker")
