"""The time as BullMQ counts it, and how long to wait after failures."""

import random
import time

BACKOFF_SECONDS = (0.1, 30.0)
# The longest wait of what must continue soon after a failover of Redis.
FAILOVER_SECONDS = 1.0
# How long an active job of a compensating group may be without its worker, in milliseconds.
GRACE = 5 * 60 * 1000
# How long a tombstone is kept.
TOMBSTONE_MS = 30 * 24 * 3600 * 1000


def now_ms() -> int:
    """Return the current time in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def backoff(failures: int, longest: float = BACKOFF_SECONDS[1]) -> float:
    """Return the seconds to wait after consecutive failures: doubling, capped, jittered."""
    first = BACKOFF_SECONDS[0]
    delay: float = min(longest, first * 2.0 ** min(failures - 1, 20))
    # No secret: the jitter keeps drivers from retrying at the same moment.
    return delay * random.uniform(0.8, 1.2)  # noqa: S311
