"""`make demo`: starts all parts, prints what happens to two orders, waits, and cleans up."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

from testbed import ROOT
from testbed.demo import story
from testbed.demo.outcome import ORDERS, Order, Unexpected, check_books, ending, entries
from testbed.demo.parts import Scene, Write, started
from testbed.demo.screen import Screen, paint
from testbed.demo.watching import Watcher
from testbed.servers.apiserver import KubectlError
from testbed.support.commands import run
from testbed.support.errors import Unavailable
from testbed.support.examples import ORDERS as EXAMPLE

PATIENCE_SECONDS = 120

DONE, WRONG, REFUSED, INTERRUPTED = 0, 1, 2, 130


class Demo:
    """Runs the orders, one after the other, on running parts."""

    # More commands for the user to try, by heading.
    also: Mapping[str, list[str]] = {}

    def __init__(self, parts: Scene, screen: Screen) -> None:
        self._parts = parts
        self._screen = screen
        self._watcher = Watcher(parts, screen.write)

    async def play(self, ends_by_itself: bool) -> None:
        """Run the orders; then wait until interrupted, unless the demo ends by itself."""
        watching = asyncio.create_task(self._watcher.run())
        try:
            for order in ORDERS:
                await self._run(order, watching)
            await self._afterwards(watching)
            await self._conclude()
            if not ends_by_itself:
                folder = self._parts.folder
                self._screen.write(story.invitation(ROOT, folder, EXAMPLE, self.also))
                with suppress(asyncio.CancelledError):
                    while True:
                        await self._pause(watching)
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _run(self, order: Order, watching: asyncio.Task[None]) -> None:
        """Apply an order, and wait for its end."""
        self._watcher.begin()
        await self._kubectl("apply", "-f", str((EXAMPLE / order.file).relative_to(ROOT)))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not order.is_over(*self._watcher.look(order.name)):
            if time.monotonic() > deadline:
                status, _ = self._watcher.look(order.name)
                raise Unexpected(
                    f"{order.name} should be {order.end} after {PATIENCE_SECONDS} s at the latest,"
                    f" and is {ending(status)}."
                )
            await self._pause(watching)
        order.check(*self._watcher.look(order.name))

    async def _afterwards(self, watching: asyncio.Task[None]) -> None:
        """Wait for what happens after the orders have ended: here, nothing."""

    async def _conclude(self) -> None:
        """Print the state that the orders leave, and check it."""
        await self._kubectl("get", "jobgroups")
        books = self._parts.books()
        self._screen.write(f"\nIn the shop's books: {entries(books)}")
        check_books(books)
        self._screen.write(paint("green", story.SUMMARY))

    async def _pause(self, watching: asyncio.Task[None]) -> None:
        """Wait a moment, and raise if a part has ended."""
        await asyncio.sleep(0.1)
        if watching.done():
            watching.result()
        self._parts.must_run()

    async def _kubectl(self, *arguments: str) -> None:
        """Run kubectl, and print the command and its output."""
        async with self._watcher.silence:
            self._screen.write("\n" + paint("bold", " ".join(["$ kubectl", *arguments])))
            command = [*self._parts.kubectl, *arguments]
            output = await asyncio.to_thread(run, *command, doing=f"kubectl {arguments[0]}")
            self._screen.write(output)


def main(
    start: Callable[[Path, Write], AbstractContextManager[Scene]] = started,
    demo: type[Demo] = Demo,
    command: str = "make demo",
) -> int:
    """Run the demo; an error is printed as a sentence, and returned as an exit code."""
    complain = partial(_complain, command)
    _heed_signals()
    screen = Screen()
    try:
        folder = Path(tempfile.mkdtemp(prefix="jobgroup-demo-"))
    except OSError as error:
        return complain(f"cannot create a temporary folder: {error}; set TMPDIR.", REFUSED)
    ends_by_itself = os.environ.get("CI", "").lower() not in ("", "0", "false", "no")
    try:
        screen.write(story.opening(folder))
        with start(folder, screen.write) as parts:
            asyncio.run(demo(parts, screen).play(ends_by_itself))
            screen.write("\nStopping everything.")
    except Unexpected as surprise:
        return complain(f"{surprise} The logs are in {folder}.", WRONG)
    except (Unavailable, KubectlError, OSError) as refusal:
        return complain(f"{refusal}\nThe logs are in {folder}.", REFUSED)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        return complain("interrupted; nothing is left running.", INTERRUPTED)
    shutil.rmtree(folder, ignore_errors=True)
    screen.write("All processes are stopped, and all files are removed.")
    return DONE


def _heed_signals() -> None:
    """Handle SIGTERM and SIGHUP like Ctrl-C, also if a shell made this process ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))


def _complain(command: str, sentence: str, code: int) -> int:
    sys.stdout.flush()
    print(f"\n{command}: {sentence}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
