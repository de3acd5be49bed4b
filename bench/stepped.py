"""The operator, except that it writes to STEPS_FILE how long each reconcile held the event loop.

A line has the name of the object and the milliseconds of the longest step of a reconcile. A step is
what runs between two moments at which other tasks can run. Its CPU is measured, because the time
also depends on other processes.
"""

import os
import time
from collections.abc import Coroutine, Generator
from functools import partial
from pathlib import Path
from typing import Any

import main
from handlers.jobgroups.reconciler import Reconciler
from handlers.kube.refs import Ref

__all__ = ["main"]

FILE = Path(os.environ["STEPS_FILE"])
reconcile = Reconciler.reconcile


class Stepped:
    """Awaits a coroutine and measures its steps."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self.longest = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        step = partial(self._coroutine.send, None)
        while True:
            start = time.thread_time()
            try:
                awaited = step()
            except StopIteration as end:
                return end.value
            finally:
                self.longest = max(self.longest, time.thread_time() - start)
            try:
                step = partial(self._coroutine.send, (yield awaited))
            except BaseException as error:
                step = partial(self._coroutine.throw, error)


def write(line: str) -> None:
    """Add a line to the file."""
    with FILE.open("a") as file:
        file.write(line)


async def measured(self: Reconciler, ref: Ref) -> float | None:
    """Reconcile an object, and write the longest step."""
    stepped = Stepped(reconcile(self, ref))
    try:
        again: float | None = await stepped
        return again
    finally:
        write(f"{ref.name} {1000 * stepped.longest}\n")


Reconciler.reconcile = measured  # type: ignore[method-assign]
