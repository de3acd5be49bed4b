"""The checks behind /livez and /readyz: each returns what is wrong, or nothing."""

import time

from handlers.kube.watches import Watches

# A loop without progress for this long has failed.
DEAD_SECONDS = 120


def check_progress(alive_at: float) -> str:
    """Return an error if the last round of a loop was too long ago."""
    is_dead = time.monotonic() - alive_at > DEAD_SECONDS
    return f"no progress for {DEAD_SECONDS} s" if is_dead else ""


class WatchCheck:
    """Checks the watches of a kind.

    A silent watch is replaced. A process that cannot replace it must be restarted: if two watches
    in a row were silent, or if there was no watch or list for as long as that takes. The CRD of a
    kind that is not required may not be installed, so its watch is required once there was one.
    """

    def __init__(self, watches: Watches, plural: str, is_required: bool = True) -> None:
        self._watches = watches
        self._plural = plural
        self._is_required = is_required
        self._started_at = time.monotonic()

    def is_live(self) -> str:
        """Return an error if a restart may help."""
        limit = 2 * self._watches.seconds
        age = self._watches.age(self._plural)
        if age is None:
            age = time.monotonic() - self._started_at if self._is_required else 0
        if age > limit:
            return f"no watch for {limit} s"
        return self._silence(2)

    def is_ready(self) -> str:
        """Return an error if the last watch was silent and the new one has received nothing yet."""
        return self._silence(1)

    def _silence(self, least: int) -> str:
        silences, seconds = self._watches.silences(self._plural), self._watches.seconds
        return f"silent for {silences * seconds} s" if silences >= least else ""
