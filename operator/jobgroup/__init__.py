"""Sagas over BullMQ jobs in Redis: the client, the driver, and the decisions of the operator.

cli         the command line
crd         the custom resource definitions and the generated docs
groups      the Python API
driver      the loop that advances groups
resync      finds groups that changed although nothing woke the driver
resource    the decisions of the operator: specs, next step, status, Events, replicas. Pure
store       Redis: scripts, their replies, queues, streams, connections. The only importer of redis
definition  the definition of a group: models, validation, the plan for create_groups.lua. Pure
model       values that all layers share: snapshots, ids and keys, text, the clock. Pure
errors      one exception for each refusal
lua         the scripts, a link to operator/lua

Imports point down this list only: cli | crd > groups | driver > resync > resource | store >
definition > model > errors. `make lint` checks it.
"""

from jobgroup.driver import Driver
from jobgroup.errors import (
    CorruptKeyError,
    EmptyGroupError,
    GroupExistsError,
    GroupNotFoundError,
    GroupRemovedError,
    InvalidGroupStateError,
    InvalidJobStateError,
    InvalidSpecError,
    JobExistsError,
    JobGroupError,
    JobInFlowError,
    JobInGroupError,
    JobNotFoundError,
    NewerFormatError,
    RedisStateLostError,
    RefusedError,
    UnknownCompensationError,
)
from jobgroup.groups import JobGroups
from jobgroup.model.snapshot import (
    GroupEvent,
    GroupJob,
    GroupNode,
    GroupPage,
    GroupState,
    JobDetails,
    JobFailure,
    JobResult,
    PrunedPage,
    Record,
    ResultPage,
)
from jobgroup.store.connection import connect
from jobgroup.store.store import Store

__version__ = "0.1.0"

__all__ = [
    "CorruptKeyError",
    "Driver",
    "EmptyGroupError",
    "GroupEvent",
    "GroupExistsError",
    "GroupJob",
    "GroupNode",
    "GroupNotFoundError",
    "GroupPage",
    "GroupRemovedError",
    "GroupState",
    "InvalidGroupStateError",
    "InvalidJobStateError",
    "InvalidSpecError",
    "JobDetails",
    "JobExistsError",
    "JobFailure",
    "JobGroupError",
    "JobGroups",
    "JobInFlowError",
    "JobInGroupError",
    "JobNotFoundError",
    "JobResult",
    "NewerFormatError",
    "PrunedPage",
    "Record",
    "RedisStateLostError",
    "RefusedError",
    "ResultPage",
    "Store",
    "UnknownCompensationError",
    "__version__",
    "connect",
]
