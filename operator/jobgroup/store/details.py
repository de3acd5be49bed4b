"""What BullMQ stores in the hashes of jobs: their names, and why they failed."""

from collections.abc import Sequence

from redis.asyncio import Redis

from jobgroup.model import names
from jobgroup.model.snapshot import GroupJob, JobDetails, JobFailure
from jobgroup.store.replies import is_its_own

GONE = "unknown: its queue no longer has the job"
UNKNOWN = "unknown"


async def read_fields(redis: Redis, keys: Sequence[str], *fields: str) -> list[list[str | None]]:
    """Read fields of hashes in one round trip; those of a corrupt key are None."""
    if not keys:
        return []
    pipeline = redis.pipeline(transaction=False)
    for key in keys:
        pipeline.hmget(key, *fields)
    replies = await pipeline.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, Exception) and not is_its_own(reply):
            raise reply
    return [[None] * len(fields) if isinstance(reply, Exception) else reply for reply in replies]


async def read_details(
    redis: Redis, prefix: str, jobs: Sequence[GroupJob], limit: int
) -> list[JobDetails]:
    """Add names, and the failures of the first jobs and the first undos that failed."""
    named = await read_fields(redis, [job.job_key for job in jobs], "name")
    failures = await read_failures(redis, prefix, jobs, limit)
    return [
        JobDetails(
            job, name or "", failures.get(job.job_id), failures.get(names.undo_id(job.job_id))
        )
        for job, (name,) in zip(jobs, named, strict=True)
    ]


async def read_failures(
    redis: Redis, prefix: str, jobs: Sequence[GroupJob], limit: int
) -> dict[str, JobFailure]:
    """Return why the first jobs and the first undos failed, by their ids."""
    members = [(job.job_id, job.queue_name) for job in jobs if job.status == "failed"]
    undos = [(names.undo_id(job.job_id), job.undoes_in) for job in jobs if job.undo == "failed"]
    failed = [*members[:limit], *undos[:limit]]
    keys = [names.job_key(prefix, queue, job_id) for job_id, queue in failed]
    found = {}
    for (job_id, queue), (name, attempts, reason) in zip(
        failed, await read_fields(redis, keys, "name", "atm", "failedReason"), strict=True
    ):
        made = int(attempts) if attempts and attempts.isdecimal() else 0
        why = reason or (GONE if name is None else UNKNOWN)
        found[job_id] = JobFailure(job_id, name or "", queue, made, why)
    return found
