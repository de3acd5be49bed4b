"""The workers of examples/order-fulfilment as they stand, with the BullMQ installed here."""

import shutil
import sys
from pathlib import Path

from testbed.stock import CLIENTS
from testbed.toolchain import node

ORDERS = Path(__file__).resolve().parents[1] / "examples" / "order-fulfilment"


def node_worker(folder: Path) -> list[str]:
    """Return the command of the Node worker, copied to where `npm install` could have been run."""
    shutil.copy(ORDERS / "worker.mjs", folder)
    packages = folder / "node_modules"
    packages.mkdir()
    (packages / "bullmq").symlink_to(CLIENTS / "node_modules" / "bullmq6")
    (packages / "ioredis").symlink_to(CLIENTS / "node_modules" / "ioredis")
    return [str(node()), str(folder / "worker.mjs")]


def python_worker() -> list[str]:
    """Return the command of the Python worker."""
    return [sys.executable, str(ORDERS / "worker.py")]
