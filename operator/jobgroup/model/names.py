"""The Redis keys that Python spells; all others are spelt in lua/includes/keys_of.lua."""

BOOKS = "_jobgroups"
UNDO = "-undo"


def books(prefix: str) -> str:
    """Name the pseudo queue whose jobs are groups."""
    return f"{prefix}:{BOOKS}"


def parent(prefix: str, group_id: str) -> str:
    """Name a group's pseudo parent."""
    return f"{prefix}:{BOOKS}:{group_id}"


def wakeups(prefix: str) -> str:
    """Name the list of groups that need a look."""
    return f"{prefix}:{BOOKS}:wait"


def marker(prefix: str) -> str:
    """Name the key that stock workers touch when they add to the wake-up list."""
    return f"{prefix}:{BOOKS}:marker"


def parked(prefix: str) -> str:
    """Name the set of groups that wait for their members."""
    return f"{prefix}:{BOOKS}:waiting-children"


def epoch(prefix: str) -> str:
    """Name the key that tells one life of a Redis from another."""
    return f"{prefix}:{BOOKS}:saga:epoch"


def ended(prefix: str) -> str:
    """Name the set of ended groups, by the time they ended."""
    return f"{prefix}:{BOOKS}:saga:ended"


def changed(prefix: str, owner: str) -> str:
    """Name the stream that tells which of an owner's groups changed."""
    return f"{prefix}:{BOOKS}:changed:{owner}"


def heard(prefix: str, owner: str) -> str:
    """Name the hash that keeps how far each reader of an owner's stream has got."""
    return f"{prefix}:{BOOKS}:heard:{owner}"


def job(prefix: str, queue: str, job_id: str) -> str:
    """Name a job's hash."""
    return f"{prefix}:{queue}:{job_id}"


def events(prefix: str, queue: str) -> str:
    """Name a queue's event stream."""
    return f"{prefix}:{queue}:events"


def group_of(wakeup: str) -> str:
    """Return the group an entry of the wake-up list is about: itself, or its undos."""
    return wakeup.removesuffix(UNDO)
