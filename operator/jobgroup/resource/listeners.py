"""The names of Redis connections -> which queues have workers. Pure.

A stock BullMQ worker names its connection after its prefix and queue: Node encodes the queue in
base64, Python does not, and a worker with a name appends `:w:` and the name. A compensation queue
has two encodings: Node does not accept a colon in the name of a queue, so a Node worker moves the
part before the colon into the prefix.
"""

import base64
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from jobgroup.model.backlog import Backlog
from jobgroup.model.snapshot import GroupJob

NO_WORKER = "no worker is connected: start one, or create a WorkerPool"
# The queue of an undo is derived; that of a job may be mistyped.
NO_WORKER_OR_QUEUE = "no worker is connected: start one, or check queueName"
# A message names at most this many queues.
MAX_NAMED = 3


def has_worker(prefix: str, queue: str, connections: Iterable[str]) -> bool:
    """Return whether a worker of this queue is connected."""
    names = _names(prefix, queue)
    return any(each.partition(":w:")[0] in names for each in connections)


def queues_without_worker(
    prefix: str, queues: Iterable[str], connections: Collection[str] | None
) -> set[str]:
    """Return the queues of which no worker is connected; none if Redis lists no connections."""
    if connections is None:
        return set()
    heads = {each.partition(":w:")[0] for each in connections}
    return {queue for queue in queues if heads.isdisjoint(_names(prefix, queue))}


def _names(prefix: str, queue: str) -> set[str]:
    names = {f"{prefix}:{queue}", f"{prefix}:{_base64(queue)}"}
    head, colon, tail = queue.rpartition(":")
    if colon:
        names.add(f"{prefix}:{head}:{_base64(tail)}")
    return names


def _base64(queue: str) -> str:
    return base64.b64encode(queue.encode()).decode()


def is_unserved(backlog: Backlog, is_connected: bool | None) -> bool:
    """Return whether jobs of a queue need a worker, and nobody seems to work.

    `is_connected` is whether a worker is connected, or None if Redis does not list connections.
    Active jobs may be those of dead workers. Delayed jobs keep a connected worker idle.
    """
    if not backlog.demand:
        return False
    if is_connected is None:
        return not backlog.active
    has_waiting = not backlog.paused and backlog.waiting + backlog.prioritized > 0
    return not is_connected or (has_waiting and not backlog.active)


def missing_workers_message(
    prefix: str, jobs: Iterable[GroupJob], connections: Collection[str] | None
) -> str:
    """Return a message that names the queues where undos wait and no worker is connected.

    It is empty if there are none, or if `connections` is None because Redis does not list them.
    """
    if connections is None:
        return ""
    waiting = Counter(job.undoes_in for job in jobs if job.undo == "pending")
    without = queues_without_worker(prefix, waiting, connections)
    return _message("undo", {queue: waiting[queue] for queue in without}, NO_WORKER)


def waiting_jobs(jobs: Iterable[GroupJob], unserved: Collection[str]) -> Counter[str]:
    """Return how many jobs of a group wait in each of the queues that have no worker."""
    return Counter(
        job.queue_name for job in jobs if job.status == "pending" and job.queue_name in unserved
    )


def waiting_jobs_message(waiting: Mapping[str, int]) -> str:
    """Return a message that names the queues where jobs wait; it is empty if there are none."""
    return _message("job", waiting, NO_WORKER_OR_QUEUE)


def _message(what: str, waiting: Mapping[str, int], advice: str) -> str:
    unserved = [(count, queue) for queue, count in sorted(waiting.items())]
    if not unserved:
        return ""
    parts = [f"{count} in {queue}" for count, queue in unserved[1:MAX_NAMED]]
    if len(unserved) > MAX_NAMED:
        parts.append(f"more in {len(unserved) - MAX_NAMED} other queues")
    count, queue = unserved[0]
    first = f"1 {what} waits in {queue}" if count == 1 else f"{count} {what}s wait in {queue}"
    waits = ", ".join([first, *parts])
    return f"{waits}; {advice}"
