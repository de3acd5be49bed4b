"""The reasons of conditions, problems and Kubernetes Events: one constant each. Pure.

Tests compare the tables in docs/resource.md and docs/workerpool.md with these constants, and refuse
a reason that is written as a literal anywhere else.
"""

from collections.abc import Mapping

from jobgroup.errors import (
    CorruptKeyError,
    GroupExistsError,
    GroupNotFoundError,
    GroupRemovedError,
    InvalidGroupStateError,
    InvalidJobStateError,
    JobExistsError,
    JobNotFoundError,
    NewerFormatError,
    RedisStateLostError,
    RefusedError,
)

# Conditions of a JobGroup that has a group, or is about to have one.
PENDING = "Pending"  # the group is not in Redis yet
RUNNING = "Running"  # the jobs are in Redis
NO_WORKER = "NoWorker"  # jobs wait in a queue that has no worker
NO_UNDO_WORKER = "NoUndoWorker"  # undos wait in a queue that has no worker
COMPENSATING = "Compensating"  # the group failed, and the undos of its completed jobs run
COMPLETED = "Completed"  # every job completed
FAILED = "Failed"  # the group failed, and every undo completed or was resolved
COMPENSATION_FAILED = "CompensationFailed"  # an undo failed for good

# Conditions of a JobGroup whose group was not created.
SUSPENDED = "Suspended"  # spec.suspend is true
CANCELLED = "Cancelled"  # spec.cancel was set; also the Event of a running group's cancellation
INVALID_SPEC = "InvalidSpec"  # the operator rejected the spec
GROUP_EXISTS = "GroupExists"  # the group's id belongs to another group
GROUP_REMOVED = "GroupRemoved"  # the group was removed from Redis and is not created again
JOB_EXISTS = "JobExists"  # the key of a job of the group is taken

# Conditions of a JobGroup that the operator cannot follow in Redis.
REDIS_STATE_LOST = "RedisStateLost"  # Redis lost the group or a part of it
NEWER_FORMAT = "NewerFormat"  # a newer release of the operator created the group
CORRUPT_KEY = "CorruptKey"  # a key of the group has a value that this project does not write

# Conditions of both kinds.
REDIS_UNAVAILABLE = "RedisUnavailable"  # Redis does not answer
REDIS_ERROR = "RedisError"  # Redis answers with an error

# Events of a JobGroup, beside those that have the reason of a condition.
DEADLINE_EXCEEDED = "DeadlineExceeded"  # spec.activeDeadlineSeconds passed
COMPENSATED = "Compensated"  # the group ended, and every undo completed or was resolved
UNDOS_RETRIED = "UndosRetried"  # somebody had failed undos retried
UNDO_RESOLVED = "UndoResolved"  # somebody resolved an undo that failed or waited
JOB_ANSWERED = "JobAnswered"  # somebody completed or failed a job without a worker
LATE_CHANGE = "LateChange"  # a job or an undo finished after its group had ended
STATUS_REFUSED = "StatusRefused"  # the API server refused the status
CLAIMED_BY_OTHER_RELEASE = "ClaimedByOtherRelease"  # another release processes the object
OPERATOR_UNINSTALLED = "OperatorUninstalled"  # the group runs without an operator

# Conditions of a WorkerPool.
COUNTING = "Counting"  # the pool counts jobs and scales its workload
QUEUE_NEVER_SEEN = "QueueNeverSeen"  # Redis has no trace of the queue
PAUSED = "Paused"  # spec.paused is true
TARGET_MISSING = "TargetMissing"  # the workload does not exist
TARGET_REFUSED = "TargetRefused"  # the workload cannot be scaled, or the API server refused it
NOT_SCALABLE = "NotScalable"  # the workload refuses to be scaled, or has not opted in
CONFLICT = "Conflict"  # an older pool scales the same workload
HORIZONTAL_POD_AUTOSCALER = "HorizontalPodAutoscaler"  # an autoscaler scales the workload

# The Event of a WorkerPool.
SCALED = "Scaled"  # the pool changed the replicas of its workload

# One entry for each subclass. The operator does not report the last four: they answer a call about
# a group or a job that has gone or changed, and the operator then reads the group again.
REFUSALS: Mapping[type[RefusedError], str] = {
    GroupExistsError: GROUP_EXISTS,
    GroupRemovedError: GROUP_REMOVED,
    JobExistsError: JOB_EXISTS,
    RedisStateLostError: REDIS_STATE_LOST,
    NewerFormatError: NEWER_FORMAT,
    CorruptKeyError: CORRUPT_KEY,
    GroupNotFoundError: REDIS_ERROR,
    InvalidGroupStateError: REDIS_ERROR,
    JobNotFoundError: REDIS_ERROR,
    InvalidJobStateError: REDIS_ERROR,
}


def for_refusal(refusal: RefusedError) -> str:
    """Return the reason of an object whose group was refused with this error."""
    return REFUSALS[type(refusal)]


def for_redis_error(is_transient: bool) -> str:
    """Return the reason of an object whose group or queue Redis could not read or write."""
    return REDIS_UNAVAILABLE if is_transient else REDIS_ERROR
