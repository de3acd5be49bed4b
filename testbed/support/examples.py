"""The examples: their workers, run with the BullMQ installed here, and the books of the orders."""

import shutil
import sys
from pathlib import Path
from typing import Any

from testbed import ROOT
from testbed.build.toolchain import node
from testbed.servers.stock import CLIENTS
from testbed.support.resources import manifest

ORDERS = ROOT / "examples" / "order-fulfilment"
CLOUD_EVENTS = ROOT / "examples" / "cloudevents"
# The content of the shop's books once order.yaml is fulfilled; refused orders leave nothing.
BOOKS = {
    "payments": {"pay-123": "99.99"},
    "reservations": {"res-123": "2"},
    "parcels": {"box-123": "Lisbon"},
}


def book_keys(prefix: str = "bull") -> dict[str, str]:
    """Return the Redis key of each of the shop's books."""
    return {book: f"{prefix}-shop:{book}" for book in BOOKS}


def problem_orders() -> list[dict[str, Any]]:
    """Return the orders of the runbooks: without workers, with an undo that fails, and another."""
    train = {"name": "book-train", "queueName": "trains"}
    parcel = {"orderId": "1", "city": "Atlantis"}
    ship = {"name": "book-shipping", "queueName": "shipping", "data": parcel}
    recall = {"name": "recall-parcel", "queueName": "cancellations", "when": "Started"}
    undo = {"book-shipping": recall}
    failing = [manifest(name, ship, undos=undo) for name in ("order-126", "order-127")]
    return [manifest("order-125", train), *failing]


def with_images(file: str, **images: str) -> str:
    """Return a manifest of the example with the images of its workers, `node` and `python`."""
    text = (ORDERS / file).read_text()
    for flavour, image in images.items():
        text = text.replace(f"image: order-workers:{flavour}", f"image: {image}")
    return text


def node_worker(folder: Path, example: Path = ORDERS) -> list[str]:
    """Return the command of the Node worker, copied to a folder with its node_modules."""
    shutil.copy(example / "worker.mjs", folder)
    packages = folder / "node_modules"
    packages.mkdir()
    (packages / "bullmq").symlink_to(CLIENTS / "node_modules" / "bullmq6")
    (packages / "ioredis").symlink_to(CLIENTS / "node_modules" / "ioredis")
    return [str(node()), str(folder / "worker.mjs")]


def python_worker(example: Path = ORDERS) -> list[str]:
    """Return the command of the Python worker."""
    return [sys.executable, str(example / "worker.py")]
