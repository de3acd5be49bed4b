"""Lines for a person: with colours on a terminal, plain elsewhere."""

import os
import re
import signal
import sys

# What a style is to a terminal. picture.py has the same in an image's colours.
STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
CODE = re.compile(r"\033\[(\d*)m")
# For terminals that know no more than ASCII.
SIMPLER = str.maketrans({"✓": "+", "✗": "x", "↺": "<", "…": "."})


def paint(style: str, text: str) -> str:
    """Give a text a style; a screen that has none takes it away again."""
    return f"\033[{STYLES[style]}m{text}\033[0m"


def printable(text: str) -> str:
    """Leave out what would command the terminal instead of being shown."""
    return "".join(character if character.isprintable() else " " for character in text)


class Screen:
    """Standard output."""

    def __init__(self) -> None:
        self._is_plain = not _has_colours()
        self._is_simple = not (sys.stdout.encoding or "").lower().startswith("utf")

    def write(self, text: str = "", end: str = "\n") -> None:
        """Write a line, or with another end a part of one."""
        if self._is_plain:
            text = CODE.sub("", text)
        if self._is_simple:
            text = text.translate(SIMPLER).encode("ascii", "replace").decode()
        try:
            print(text, end=end, flush=True)
        except OSError:
            # The terminal was closed, or `head` had enough: nobody looks, so it is time to end.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
            signal.raise_signal(signal.SIGINT)


def _has_colours() -> bool:
    """Honour what the field agreed on: NO_COLOR, FORCE_COLOR, and no colours into a file."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
