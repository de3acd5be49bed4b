"""The checks behind /livez: each returns what is wrong, or nothing."""

import asyncio
import time

# A loop without progress for this long is dead, whatever it waits for.
DEAD_SECONDS = 120


def check_progress(alive_at: float) -> str:
    """Return an error if a loop made its last round too long ago."""
    is_dead = time.monotonic() - alive_at > DEAD_SECONDS
    return f"no progress for {DEAD_SECONDS} s" if is_dead else ""


class WatchCheck:
    """Checks that kopf watches a kind: it does not restart a watcher that died.

    The CRD of a kind that is not required may not be installed. The watcher of such a kind is
    required only after it was found once.
    """

    def __init__(self, plural: str, is_required: bool = True) -> None:
        self._watcher = f"watcher for {plural}."
        self._is_required = is_required
        self._missing_since: float | None = None

    def __call__(self) -> str:
        """Return an error if there was no watcher for DEAD_SECONDS; a short gap is normal."""
        now = time.monotonic()
        if any(task.get_name().startswith(self._watcher) for task in asyncio.all_tasks()):
            self._is_required, self._missing_since = True, None
        elif self._is_required and self._missing_since is None:
            self._missing_since = now
        missing = 0.0 if self._missing_since is None else now - self._missing_since
        return f"no watch for {DEAD_SECONDS} s" if missing > DEAD_SECONDS else ""
