"""All WorkerPools of the cluster, found by uid, by workload and by queue; and rival pools.

The workload and the queue of a pool are immutable. No lookup depends on how many pools there are.
"""

from collections.abc import Collection, Iterator

from handlers.workerpools.pool import Pool
from handlers.workerpools.targets import Target
from jobgroup.resource import reasons
from jobgroup.resource.conditions import Problem


class Pools:
    """The pools that exist."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        # By workload and by queue.
        self._index: dict[Target | str, dict[str, Pool]] = {}

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._pools.values())

    def __contains__(self, uid: str) -> bool:
        return uid in self._pools

    def get(self, uid: str) -> Pool | None:
        """Return a pool, or None if there is none."""
        return self._pools.get(uid)

    def add(self, pool: Pool) -> None:
        """Add a pool."""
        self._pools[pool.ref.uid] = pool
        for key in (pool.target, pool.queue):
            self._index.setdefault(key, {})[pool.ref.uid] = pool

    def remove(self, uid: str) -> Pool | None:
        """Remove a pool and return it, if there is one."""
        pool = self._pools.pop(uid, None)
        for key in (pool.target, pool.queue) if pool else ():
            del self._index[key][uid]
            if not self._index[key]:
                del self._index[key]
        return pool

    def of_queues(self, queues: Collection[str]) -> list[Pool]:
        """Return the pools of these queues."""
        return [pool for queue in queues for pool in self._index.get(queue, {}).values()]

    def of_workload(self, target: Target) -> list[Pool]:
        """Return the pools of a workload; only the oldest one scales it."""
        return list(self._index.get(target, {}).values())

    def older_rivals(self, of: Pool) -> list[Pool]:
        """Return the older pools of the same workload."""
        return [pool for pool in self.of_workload(of.target) if pool.age < of.age]

    def conflict(self, pool: Pool) -> Problem | None:
        """Return a problem if an older pool scales the same workload, else None."""
        for rival in self.older_rivals(pool):
            return Problem(
                reasons.CONFLICT,
                f"the WorkerPool {rival.ref.name} scales the same workload and is older;"
                " delete one of the two",
            )
        reason, message = pool.ready_condition
        if pool.is_new and reason == reasons.CONFLICT:
            # After a restart, the watch may not have reported the older pool yet.
            return Problem(reason, message)
        return None
