"""The checkpoint of a stream reader: the entry after which a new process must start to read.

An entry is processed when the object that it names was reconciled. Objects are reconciled in no
particular order, so the checkpoint stays before the first entry whose object is not reconciled yet.
A new process may therefore process some entries again.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from jobgroup.store.streams import START

Key = TypeVar("Key", bound=Hashable)


class Checkpoint(Generic[Key]):
    """The position of one reader in a stream."""

    def __init__(self, read_to: str = START) -> None:
        self.read_to = read_to
        # Objects to reconcile, each with the entry before its first one, oldest first. An object is
        # stored once, however many entries name it.
        self._pending: dict[Key, str] = {}

    def read(self, entry: str, key: Key | None) -> None:
        """Advance to the next entry; `key` is its object, or None if it is not ours."""
        if key is not None:
            self._pending.setdefault(key, self.read_to)
        self.read_to = entry

    def start_after(self, is_dirty: Callable[[Key], bool]) -> str:
        """Return the newest entry up to which all objects have been reconciled."""
        self._pending = {key: entry for key, entry in self._pending.items() if is_dirty(key)}
        return next(iter(self._pending.values()), self.read_to)


def is_older(entry: str, other: str) -> bool:
    """Return whether an entry of a stream is before another."""
    return _numbers(entry) < _numbers(other)


def _numbers(entry: str) -> tuple[int, int]:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)
