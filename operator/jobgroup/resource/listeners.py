"""Who listens to a queue, told from what connections call themselves. Pure.

A stock worker names its connection after its prefix and queue: Node spells the queue in base64,
Python as it is, and a worker with a name of its own adds `:w:` and that name. The queue of undos
may be spelt in two ways, for Node refuses a colon in a queue's name and takes a longer prefix.
"""

import base64
from collections import Counter
from collections.abc import Collection, Iterable

from jobgroup.snapshot import GroupJob

# So many queues are named in one sentence.
NAMED = 3


def has_listener(prefix: str, queue: str, connections: Iterable[str]) -> bool:
    """Say whether a worker of this queue is connected."""
    names = _names(prefix, queue)
    return any(each.partition(":w:")[0] in names for each in connections)


def _names(prefix: str, queue: str) -> set[str]:
    names = {f"{prefix}:{queue}", f"{prefix}:{_base64(queue)}"}
    head, colon, tail = queue.rpartition(":")
    if colon:
        names.add(f"{prefix}:{head}:{_base64(tail)}")
    return names


def _base64(queue: str) -> str:
    return base64.b64encode(queue.encode()).decode()


def nobody_listens(
    prefix: str, jobs: Iterable[GroupJob], connections: Collection[str] | None
) -> str:
    """Name the queues where undos wait and no worker is; nothing if there are none, or who knows.

    `connections` is None if Redis does not tell: that is no reason to say that nobody is there.
    """
    if connections is None:
        return ""
    waiting = Counter(f"{job.queue_name}:compensation" for job in jobs if job.undo == "pending")
    unheard = [
        (count, queue)
        for queue, count in sorted(waiting.items())
        if not has_listener(prefix, queue, connections)
    ]
    if not unheard:
        return ""
    parts = [f"{count} in {queue}" for count, queue in unheard[1:NAMED]]
    if len(unheard) > NAMED:
        parts.append(f"more in {len(unheard) - NAMED} other queues")
    count, queue = unheard[0]
    first = f"1 undo waits in {queue}" if count == 1 else f"{count} undos wait in {queue}"
    return f"{', '.join([first, *parts])}; no worker is listening"
