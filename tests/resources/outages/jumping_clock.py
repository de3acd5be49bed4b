"""The operator with a wall clock that is ahead of the machine's by the seconds in a file."""

import os
import time
from pathlib import Path

AHEAD = Path(os.environ["SECONDS_AHEAD"])
true_time, true_time_ns = time.time, time.time_ns


def seconds_ahead() -> int:
    return int(AHEAD.read_text() or 0)


time.time = lambda: true_time() + seconds_ahead()
time.time_ns = lambda: true_time_ns() + seconds_ahead() * 10**9

import main  # noqa: E402, F401
