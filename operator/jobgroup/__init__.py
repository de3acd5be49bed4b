"""The core of a saga: pure unless marked (redis), and free of Kubernetes.

options            BullMQ's options that a job or an undo may be told
spec               a definition -> frozen models, or the sentence that says what is wrong
resource           the JobGroup resource: its spec, and a raw object -> settings and a definition
resource_status    what its status tells
crd                the two -> the CRD, with the rules of rules.py and the schemas of structural.py
plan               models and an id -> one packed argument of create_groups.lua
keys               the Redis keys that Python spells
scripts   (redis)  lua/ -> callables whose names and arguments come from each script's header
store     (redis)  one typed method per script, and the wake-up list
observer           what the core does, told to whoever counts it
snapshot           frozen values of what the scripts return
groups    (redis)  the Python API
driver    (redis)  what moves sagas on
errors             one exception for each refusal
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
    "RefusedError",
    "SpoiltKeyError",
    "Store",
    "UnknownCompensationError",
    "__version__",
    "connect",
]
