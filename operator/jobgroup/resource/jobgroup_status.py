"""The schema of a JobGroup's status as pydantic models; status.py builds the status itself.

The CRD is generated from the models, and `kubectl explain` prints their descriptions.
"""

from typing import Annotated, Literal

from pydantic import Field

from jobgroup.definition.options import Model
from jobgroup.definition.spec import MAX_JOBS
from jobgroup.model.snapshot import JobStatus, State
from jobgroup.resource.answers import AnswerState
from jobgroup.resource.conditions import MAX_REASON
from jobgroup.resource.status import MAX_LINE_REASON, MAX_LINES

MAX_EVENTS = 10
MAX_CONDITIONS = 16

ReportedState = Literal["PENDING", State]

Count = Annotated[int, Field(ge=0, le=MAX_JOBS)]
Short = Annotated[str, Field(max_length=63)]
# The name of a queue and `:compensation`.
UndoQueue = Annotated[str, Field(max_length=76)]
Text = Annotated[str, Field(max_length=MAX_REASON)]
JobName = Annotated[str, Field(max_length=253)]
Id = Annotated[str, Field(max_length=256)]
Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]


class CompensationCounts(Model):
    """Counts of the undos."""

    total: Count | None = Field(default=None, description="Undos that were added to their queues.")
    completed: Count | None = Field(default=None, description="Undos that completed.")
    failed: Count | None = Field(
        default=None,
        description="Undos that failed after their last attempt, without those that were resolved.",
    )
    resolved: Count | None = Field(
        default=None, description="Undos that people resolved; absent if there are none."
    )
    retries: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="How often the failed undos were retried by request; absent if they were not.",
    )


class Failure(Model):
    """Why the group did not complete."""

    jobName: JobName | None = Field(  # noqa: N815
        default=None,
        description="The name of the first job that failed; absent if the group was cancelled.",
    )
    jobId: Id | None = Field(default=None, description="The BullMQ id of that job.")  # noqa: N815
    reason: Text | None = Field(
        default=None, description="The error of its worker, at most 1,024 bytes of it."
    )
    attemptsMade: Annotated[int, Field(ge=0)] | None = Field(  # noqa: N815
        default=None, description="How many attempts of that job were made."
    )


class JobLineFailure(Model):
    """Why a job or an undo failed for good."""

    name: JobName | None = Field(default=None, description="The name of the job that failed.")
    queueName: UndoQueue | None = Field(default=None, description="Its queue.")  # noqa: N815
    attemptsMade: Annotated[int, Field(ge=0)] | None = Field(  # noqa: N815
        default=None, description="How many attempts were made; absent if unknown."
    )
    reason: Annotated[str, Field(max_length=MAX_LINE_REASON)] | None = Field(
        default=None, description="The error of its worker, at most 512 bytes of it."
    )


class ResolvedUndo(Model):
    """Who resolved an undo, and why."""

    by: JobName | None = Field(default=None, description="Who resolved it.")
    reason: Annotated[str, Field(max_length=MAX_LINE_REASON)] | None = Field(
        default=None, description="What was done, at most 512 bytes of it."
    )


class JobLine(Model):
    """The progress of one job."""

    name: JobName = Field(description="The job's name.")
    queueName: Short | None = Field(default=None, description="The queue of the job.")  # noqa: N815
    jobId: Id | None = Field(default=None, description="The BullMQ id of the job.")  # noqa: N815
    status: JobStatus | None = Field(default=None, description="The progress of the job.")
    undo: Literal["pending", "completed", "failed", "resolved"] | None = Field(
        default=None, description="The progress of its undo, if one was added."
    )
    answer: AnswerState | None = Field(
        default=None,
        description="What became of its answer in spec.complete: Waiting (the job is active),"
        " Applied, or Refused (the job ended in another way, or its group is not ACTIVE).",
    )
    resolved: ResolvedUndo | None = Field(
        default=None, description="Who resolved its undo, and why; absent if nobody did."
    )
    failure: JobLineFailure | None = Field(
        default=None, description="Why the job failed, for the first 10 that failed."
    )
    undoFailure: JobLineFailure | None = Field(  # noqa: N815
        default=None, description="Why its undo failed, for the first 10 undos that failed."
    )


class EventLine(Model):
    """One event in the history of the group."""

    time: Time | None = Field(default=None, description="When it happened.")
    type: Short | None = Field(
        default=None,
        description="What happened: Created, Failing (a job failed, or a cancellation), Ended, or a"
        " request of a person: UndosRetried, UndoResolved or JobAnswered.",
    )
    message: Text | None = Field(default=None, description="The event in a sentence.")


class Condition(Model):
    """One observation about the resource, with a reason."""

    type: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="The name of the condition."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    observedGeneration: Annotated[int, Field(ge=0)] | None = Field(  # noqa: N815
        default=None, description="The metadata.generation that the condition is based on."
    )
    lastTransitionTime: Time = Field(description="When the status of the condition last changed.")  # noqa: N815
    reason: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="The reason for the status, one word for programs."
    )
    message: Annotated[str, Field(max_length=2048)] = Field(
        description="The reason for the status, a sentence for people."
    )


class JobGroupStatus(Model):
    """The observed state of the group, written by the operator."""

    observedGeneration: Annotated[int, Field(ge=-1)] = Field(  # noqa: N815
        default=-1,
        description="The metadata.generation of this status; -1 before the first reconcile.",
    )
    groupId: Id | None = Field(  # noqa: N815
        default=None, description="The id of the group in Redis, equal to metadata.uid."
    )
    state: ReportedState | None = Field(
        default=None,
        description="PENDING until the jobs are in Redis; after that the state of the group.",
    )
    progress: Short | None = Field(
        default=None, description="Completed jobs and all jobs, for example 2/3."
    )
    undone: Short | None = Field(
        default=None, description="Completed undos and all undos, for example 1/2."
    )
    totalJobs: Count | None = Field(default=None, description="All jobs of the group.")  # noqa: N815
    completedCount: Count | None = Field(default=None, description="Jobs that completed.")  # noqa: N815
    failedCount: Count | None = Field(  # noqa: N815
        default=None, description="Jobs that failed after their last attempt."
    )
    cancelledCount: Count | None = Field(  # noqa: N815
        default=None, description="Jobs that were removed before a worker started them."
    )
    compensation: CompensationCounts | None = Field(
        default=None, description="Counts of the undos; absent if there are none."
    )
    failure: Failure | None = Field(
        default=None, description="The first failure, or why the group was cancelled."
    )
    jobs: Annotated[tuple[JobLine, ...], Field(max_length=MAX_LINES)] | None = Field(
        default=None,
        description="At most 100 jobs: failed ones first, then active ones and pending undos.",
    )
    jobsOmitted: Count | None = Field(  # noqa: N815
        default=None, description="How many jobs are not listed in jobs."
    )
    events: Annotated[tuple[EventLine, ...], Field(max_length=MAX_EVENTS)] | None = Field(
        default=None, description="The history of the group, at most 10 events."
    )
    startedAt: Time | None = Field(  # noqa: N815
        default=None, description="When the jobs were added to their queues."
    )
    finishedAt: Time | None = Field(default=None, description="When the group ended.")  # noqa: N815
    conditions: Annotated[tuple[Condition, ...], Field(max_length=MAX_CONDITIONS)] | None = Field(
        default=None,
        description="Ready, Reconciling and Stalled are for programs that use kstatus, such as"
        " GitOps tools; Finished, Succeeded and Compensated are for people and kubectl wait.",
    )
