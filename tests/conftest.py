"""The fixtures of every test, and the marker `unit`, which is set here.

A unit test lies in tests/jobgroup, tests/handlers or tests/sagas/histories, requests no fixture
that starts a server and is not marked `server`. A unit test that starts a process or opens a
connection fails.
"""

import gc
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["testbed.support.fixtures", "tests.resources.fixtures"]

UNIT_FOLDERS = [
    Path(__file__).parent / name for name in ("jobgroup", "handlers", "sagas/histories")
]
# Every other fixture that needs a server requests one of these.
SERVERS = {"access", "api", "island_api", "open_shop", "quiet_api", "server", "shared"}
FORBIDDEN = {"os.fork", "os.posix_spawn", "socket.bind", "socket.connect", "subprocess.Popen"}

# A shell starts background processes with SIGINT ignored, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def is_unit(item: pytest.Item) -> bool:
    """Return whether a test needs no server."""
    return (
        any(item.path.is_relative_to(folder) for folder in UNIT_FOLDERS)
        and SERVERS.isdisjoint(getattr(item, "fixturenames", ()))
        and not item.get_closest_marker("server")
    )


# First, so that the selection by -m sees the marker.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_unit(item):
            item.add_marker("unit")


def pytest_sessionfinish() -> None:
    # The plugin of hypothesis parses files next. In Python 3.11, that raises SystemError if it
    # collects an object whose end prints a traceback, because this parses a file too.
    gc.collect()


class Guard:
    """Collects what the running unit test does that only a test of the other tiers may do."""

    def __init__(self) -> None:
        self.watching = False
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watching and event in FORBIDDEN:
            self.seen.append(f"{event} {arguments[:2]}")


GUARD = Guard()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    GUARD.watching = item.get_closest_marker("unit") is not None
    GUARD.seen.clear()
    try:
        result = yield
    finally:
        GUARD.watching = False
    if GUARD.seen:
        pytest.fail(
            "this unit test starts a process or opens a connection; mark it with"
            f" @pytest.mark.server: {GUARD.seen[0]}"
        )
    return result
