"""Users and passwords that come from files, such as a mounted Secret, and change with them."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from redis.credentials import CredentialProvider

from jobgroup.store.files import Stamp, stamps

logger = logging.getLogger(__name__)

# Look at the files at most this often.
LOOK_SECONDS = 1.0

Credentials = tuple[str, ...]


class FileCredentials(CredentialProvider):
    """A user and a password that are read again when one of their files has changed."""

    def __init__(
        self, read: Callable[[], tuple[str, str]], files: Sequence[Path], of: str = "Redis"
    ) -> None:
        self._read = read
        self._files = tuple(files)
        self._of = of
        # None if the files must be read again, even if they look the same.
        self._seen: list[Stamp] | None = stamps(self._files)
        self._current = _arguments(*read())
        self._look_at = time.monotonic() + LOOK_SECONDS
        self._reported: Credentials | None = None
        self._unreadable = ""

    def current(self) -> Credentials:
        """Return the arguments of AUTH; the last known ones while a file cannot be read."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            found = stamps(self._files)
            if found != self._seen:
                try:
                    self._current = _arguments(*self._read())
                    self._seen, self._unreadable = found, ""
                except Exception as error:  # it may be in the middle of a change
                    if self._unreadable != str(error):
                        logger.warning("keeping the credentials of %s: %s", self._of, error)
                    self._unreadable = str(error)
        return self._current

    def get_credentials(self) -> Credentials:  # type: ignore[override]
        """Return the arguments of AUTH for a new connection."""
        return self.current()

    async def get_credentials_async(self) -> Credentials:  # type: ignore[override]
        """Return the arguments of AUTH for a new connection."""
        return self.current()

    def rejected(self, reply: Exception) -> str:
        """Return what to say when the server rejected the credentials; log it once.

        The files are read again even if they look the same: they may have been written twice
        within one tick of the clock of the file system.
        """
        self._seen = None
        files = ", ".join(map(str, self._files))
        message = f"{self._of} rejects the credentials in {files}, which are read again: {reply}"
        if self._reported != self._current:
            self._reported = self._current
            logger.warning("%s", message)
        return message


def _arguments(username: str, password: str) -> Credentials:
    """Return the arguments of AUTH; nothing if there is neither user nor password."""
    if username:
        return username, password
    return (password,) if password else ()
