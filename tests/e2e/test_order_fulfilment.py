"""The example, as it stands: an order that is fulfilled, and one that is refused and undone.

Nobody works on payments:compensation until a payment is to be refunded: a WorkerPool wakes the
Deployment then, and lets it sleep again. Once with workers in Node, once in Python.
"""

import json

import pytest

from testbed import examples
from testbed.installation import REDIS_ALIAS
from tests.e2e.stage import Stage, told


@pytest.fixture
def shop(stage: Stage) -> Stage:
    """Give the example what it expects: a Redis called `redis`, workers, and empty books."""
    stage.kubectl.apply(REDIS_ALIAS)
    stage.redis("DEL", *examples.book_keys().values())
    stage.apply_example("workers.yaml")
    return stage


def books(shop: Stage) -> dict[str, dict[str, str]]:
    """Return what the shop has in its books."""
    return {
        book: json.loads(shop.redis("--json", "HGETALL", key))
        for book, key in examples.book_keys().items()
    }


def test_an_order_is_fulfilled(shop: Stage) -> None:
    shop.apply_example("order.yaml")

    shop.kubectl("wait", "--for=condition=Finished", "jobgroup/order-123", "--timeout=180s")

    shop.sees("order-123", state="COMPLETED", progress="3/3")
    assert books(shop) == examples.BOOKS


@pytest.mark.parametrize("flavour", ["node", "python"])
def test_a_refused_order_is_undone_by_workers_that_slept(shop: Stage, flavour: str) -> None:
    shop.apply_example(f"deployment-{flavour}.yaml")
    # Shorter than the example's, for nobody wants to wait a minute for the end of this story.
    shop.kubectl(
        *("patch", "workerpool", "payments-undo", "--type=merge"),
        *("--patch", '{"spec": {"cooldownSeconds": 3}}'),
    )
    # A Deployment that says nothing of replicas begins with one.
    shop.kubectl.wait("deployment/payments-undo-worker", ".spec.replicas", 0)
    shop.kubectl.wait_gone("pods", "--selector=app=payments-undo-worker")

    shop.apply_example("order-refused.yaml")

    shop.sees("order-124", state="FAILED", undone="2/2")
    assert told(shop.kubectl, "order-124") >= {"Failed", "Compensating", "Compensated"}
    assert told(shop.kubectl, "payments-undo") >= {"Scaled"}
    assert not any(books(shop).values())
    shop.kubectl.wait("deployment/payments-undo-worker", ".spec.replicas", 0)
    shop.kubectl.wait_gone("pods", "--selector=app=payments-undo-worker")
