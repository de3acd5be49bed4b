"""What a JobGroup's status tells, as pydantic models; crd.py makes the schema of them.

Each description is what `kubectl explain` says. status.py makes dicts that these describe.
"""

from typing import Annotated, Literal

from pydantic import Field

from jobgroup.conditions import MAX_REASON
from jobgroup.options import Model
from jobgroup.snapshot import JobStatus
from jobgroup.spec import MAX_JOBS
from jobgroup.status import MAX_LINES

MAX_EVENTS = 10
MAX_CONDITIONS = 16

States = Literal["PENDING", "ACTIVE", "COMPENSATING", "COMPLETED", "FAILED", "FAILED_COMPENSATION"]

Count = Annotated[int, Field(ge=0, le=MAX_JOBS)]
Short = Annotated[str, Field(max_length=63)]
Text = Annotated[str, Field(max_length=MAX_REASON)]
JobName = Annotated[str, Field(max_length=253)]
Id = Annotated[str, Field(max_length=256)]
Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]


class CompensationCounts(Model):
    """How far the undos are."""

    total: Count | None = Field(default=None, description="Undos that were added.")
    completed: Count | None = Field(default=None, description="Undos that completed.")
    failed: Count | None = Field(default=None, description="Undos that failed for good.")


class Failure(Model):
    """Why the group did not complete."""

    jobName: JobName | None = Field(  # noqa: N815
        default=None, description="The name of the first job that failed; none if it was given up."
    )
    jobId: Id | None = Field(default=None, description="The BullMQ id of that job.")  # noqa: N815
    reason: Text | None = Field(
        default=None, description="What its worker said, cut if it was long."
    )
    attemptsMade: Annotated[int, Field(ge=0)] | None = Field(  # noqa: N815
        default=None, description="How often that job was tried."
    )


class JobLine(Model):
    """Where one job is."""

    name: JobName = Field(description="The job's name.")
    queueName: Short | None = Field(default=None, description="The queue it is in.")  # noqa: N815
    jobId: Id | None = Field(default=None, description="Its BullMQ id.")  # noqa: N815
    status: JobStatus | None = Field(default=None, description="How it goes.")
    undo: Literal["pending", "completed", "failed"] | None = Field(
        default=None, description="How its undo goes, if it has one."
    )


class EventLine(Model):
    """One event of the group."""

    time: Time | None = Field(default=None, description="When it happened.")
    type: Short | None = Field(
        default=None,
        description="What happened: Created, Failing (the group was given up) or Ended.",
    )
    message: Text | None = Field(default=None, description="The same in a sentence.")


class Condition(Model):
    """One yes or no about the resource, with a reason."""

    type: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="What it is about, in one word."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it is so.")
    observedGeneration: Annotated[int, Field(ge=0)] | None = Field(  # noqa: N815
        default=None, description="The metadata.generation this was said about."
    )
    lastTransitionTime: Time = Field(description="When the status last changed.")  # noqa: N815
    reason: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="Why, in one word for programs."
    )
    message: Annotated[str, Field(max_length=2048)] = Field(
        description="Why, in a sentence for people."
    )


class JobGroupStatus(Model):
    """What is known: written by the operator, and only when it changed."""

    observedGeneration: Annotated[int, Field(ge=-1)] = Field(  # noqa: N815
        default=-1,
        description="The metadata.generation this status is about; -1 until it was looked at.",
    )
    groupId: Id | None = Field(  # noqa: N815
        default=None, description="The group's id in Redis, which is the resource's metadata.uid."
    )
    state: States | None = Field(
        default=None,
        description="PENDING until the jobs are in Redis, then the state of the group.",
    )
    progress: Short | None = Field(
        default=None, description="Completed jobs of all jobs, as in 2/3."
    )
    undone: Short | None = Field(
        default=None, description="Completed undos of all undos, as in 1/2."
    )
    totalJobs: Count | None = Field(default=None, description="Jobs of the group.")  # noqa: N815
    completedCount: Count | None = Field(default=None, description="Jobs that completed.")  # noqa: N815
    failedCount: Count | None = Field(default=None, description="Jobs that failed for good.")  # noqa: N815
    cancelledCount: Count | None = Field(  # noqa: N815
        default=None, description="Jobs that were dropped before they ran."
    )
    compensation: CompensationCounts | None = Field(
        default=None, description="How far the undos are."
    )
    failure: Failure | None = Field(
        default=None, description="The first failure, or why it was given up."
    )
    jobs: Annotated[tuple[JobLine, ...], Field(max_length=MAX_LINES)] | None = Field(
        default=None, description="At most 100 jobs, those that failed, are active or undone first."
    )
    jobsOmitted: Count | None = Field(  # noqa: N815
        default=None, description="How many more jobs there are than lines in jobs."
    )
    events: Annotated[tuple[EventLine, ...], Field(max_length=MAX_EVENTS)] | None = Field(
        default=None, description="The last 10 events of the group."
    )
    startedAt: Time | None = Field(default=None, description="When the jobs were added.")  # noqa: N815
    finishedAt: Time | None = Field(default=None, description="When the group ended.")  # noqa: N815
    conditions: Annotated[tuple[Condition, ...], Field(max_length=MAX_CONDITIONS)] | None = Field(
        default=None,
        description="Ready, Reconciling and Stalled are for programs, as kstatus and GitOps tools;"
        " Finished, Succeeded and Compensated are for people and kubectl wait.",
    )
