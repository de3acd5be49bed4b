"""How far a stream was read, and where to begin again if this process is lost: nothing else.

An entry is done with when the object it is about was looked at. Objects are looked at in no order,
so whoever comes next begins at the first one that is still owed a look, and sees some once more.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from jobgroup.streams import START

Key = TypeVar("Key", bound=Hashable)


class Bookmark(Generic[Key]):
    """A place in a stream, for one reader."""

    def __init__(self, read_to: str = START) -> None:
        self.read_to = read_to
        # Whoever is owed a look, and the entry before the first one about it, oldest first. So an
        # object that fails for ever takes up one line here, however much is told of it.
        self._owed: dict[Key, str] = {}

    def read(self, entry: str, key: Key | None) -> None:
        """Go on to the next entry, which is about this object, or about none of ours."""
        if key is not None:
            self._owed.setdefault(key, self.read_to)
        self.read_to = entry

    def begin_after(self, is_owed: Callable[[Key], bool]) -> str:
        """Return the newest entry up to which all objects have been looked at."""
        self._owed = {key: before for key, before in self._owed.items() if is_owed(key)}
        return next(iter(self._owed.values()), self.read_to)


def is_older(entry: str, other: str) -> bool:
    """Say whether one entry of a stream stands before another."""
    return _numbers(entry) < _numbers(other)


def _numbers(entry: str) -> tuple[int, int]:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)
