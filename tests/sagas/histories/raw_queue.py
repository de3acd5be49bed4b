"""A queue as a person uses it who changes its keys without BullMQ."""

from redis.asyncio import Redis


class RawQueue:
    """The keys of one queue."""

    def __init__(self, redis: Redis, prefix: str, name: str) -> None:
        self._redis = redis
        self._base = f"{prefix}:{name}"

    def key(self, name: str) -> str:
        """Return the key of a list, a set or a job of the queue."""
        return f"{self._base}:{name}"

    async def lose_worker(self, job_id: str) -> None:
        """Delete the lock of a job, as if its worker had died."""
        await self._redis.delete(self.key(f"{job_id}:lock"))

    async def delete_job(self, job_id: str) -> None:
        """Delete the hash of a job and its entries, as a person does with DEL, LREM and ZREM."""
        connection, key = self._redis, self.key
        await connection.delete(key(job_id), key(f"{job_id}:lock"))
        for name in ("wait", "paused", "active"):
            await connection.lrem(key(name), 0, job_id)
        for name in ("delayed", "prioritized", "completed", "failed"):
            await connection.zrem(key(name), job_id)
        await connection.srem(key("stalled"), job_id)

    async def delete_parent(self, job_id: str) -> None:
        """Delete the hash of a parent and what it records of its children."""
        keys = [job_id, *(f"{job_id}:{name}" for name in ("dependencies", "processed"))]
        keys.append(f"{job_id}:unsuccessful")
        await self._redis.delete(*map(self.key, keys))

    async def delete_list(self, name: str) -> None:
        """Delete a list, as a person does with DEL."""
        await self._redis.delete(self.key(name))

    async def resume_by_hand(self) -> None:
        """Resume the queue without moving jobs from the list `paused`.

        The Python client leaves jobs there if there are more than 7,000.
        """
        await self._redis.hdel(self.key("meta"), "paused")
