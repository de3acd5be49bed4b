"""The core of a saga: pure unless marked (redis), and free of Kubernetes.

A group is defined:
options            BullMQ's options that a job or an undo may be told
spec               a definition -> frozen models, or the sentence that says what is wrong
sentences          what pydantic found wrong -> that sentence
definition         the text of a file -> the plans of the groups in it
plan               models and an id -> one packed argument of create_groups.lua

It runs in Redis:
connection (redis) the way to Redis, and what to do when it is away
keys               the Redis keys that Python spells
scripts    (redis) lua/ -> callables whose names and arguments come from each script's header
store      (redis) one typed method per script, and the wake-up list
answers    (redis) what scripts answer -> values, or the exception of what they refuse with
queues     (redis) what waits in queues, what stirs there, and who listens
streams    (redis) the events of queues, and which groups of an owner changed
snapshot           frozen values of what the scripts return
groups     (redis) the Python API
driver     (redis) what moves sagas on
observer           what the core does, told to whoever counts it
errors             one exception for each refusal

It is a resource:
settings           the environment -> what the operator is told
resource           the JobGroup resource: its spec, and a raw object -> settings and a definition
resource_status    what its status tells
decisions          an object and its group -> the next step
status             what Redis knows of a group -> the status of its resource
news               what happened since that was written -> Events
conditions         what any status is made of: troubles, conditions, times, clean texts
listeners          the names of connections -> who listens to a queue

Its workers are scaled:
pool               the WorkerPool resource: its spec and status
replicas           a backlog and a pool's bounds -> how many workers, and why
pool_status        what is known of a pool -> the status of its resource

All of it is told to others:
crd                the models of the JobGroup -> its CRD, and what all CRDs have in common
pool_crd           the same of the WorkerPool
rules              the CEL rules in the CRD, and the sentences they say
structural         pydantic models -> schemas as a CRD wants them
generate           what `make generate` calls: writes the CRDs
reference          the same: writes the docs' reference and the saga's table
__main__           the command line
verbs              what each verb of it does
progress           groups and jobs as texts for people and fields for programs
"""

from jobgroup.connection import connect
from jobgroup.driver import Driver
from jobgroup.errors import (
    EmptyGroupError,
    GroupExistsError,
    GroupNotFoundError,
    GroupRemovedError,
    InvalidGroupStateError,
    InvalidSpecError,
    JobExistsError,
    JobGroupError,
    JobInFlowError,
    JobInGroupError,
    RedisStateLostError,
    RefusedError,
    SpoiltKeyError,
    UnknownCompensationError,
)
from jobgroup.groups import JobGroups
from jobgroup.snapshot import GroupEvent, GroupJob, GroupNode, GroupState
from jobgroup.store import Store

__version__ = "0.1.0"

__all__ = [
    "Driver",
    "EmptyGroupError",
    "GroupEvent",
    "GroupExistsError",
    "GroupJob",
    "GroupNode",
    "GroupNotFoundError",
    "GroupRemovedError",
    "GroupState",
    "InvalidGroupStateError",
    "InvalidSpecError",
    "JobExistsError",
    "JobGroupError",
    "JobGroups",
    "JobInFlowError",
    "JobInGroupError",
    "RedisStateLostError",
    "RefusedError",
    "SpoiltKeyError",
    "Store",
    "UnknownCompensationError",
    "__version__",
    "connect",
]
