"""Standard output: with colours on a terminal, plain elsewhere."""

import os
import re
import signal
import sys

# The terminal code of each style. picture.py has the colours for an image.
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
# For terminals that support only ASCII.
SIMPLER = str.maketrans({"✓": "+", "✗": "x", "↺": "<", "…": "."})


def paint(style: str, text: str) -> str:
    """Return a text with a style; a screen without colours removes it."""
    return f"\033[{STYLES[style]}m{text}\033[0m"


def printable(text: str) -> str:
    """Return a text in which control characters are replaced by spaces."""
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
            # The terminal or the reader of the pipe is gone: end the demo.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
            signal.raise_signal(signal.SIGINT)


def _has_colours() -> bool:
    """Return whether to use colours: by NO_COLOR, else FORCE_COLOR, else on a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
