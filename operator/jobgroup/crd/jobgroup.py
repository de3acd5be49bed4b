"""The models of the JobGroup resource -> its CRD. Pure."""

from typing import Any

from jobgroup.crd import rules
from jobgroup.crd.custom_resource import (
    MESSAGE_COLUMN,
    REASON_COLUMN,
    RULES,
    build_crd,
    object_schema,
    status_schema,
)
from jobgroup.crd.structural import OPAQUE, Schema, structural
from jobgroup.definition.options import MAX_COUNT, JobOptions, RetryOptions
from jobgroup.definition.spec import MAX_QUEUE_NAME, MAX_UNDO_QUEUE
from jobgroup.resource.jobgroup_spec import JobGroupSpec
from jobgroup.resource.jobgroup_status import JobGroupStatus
from jobgroup.resource.kinds import JOBGROUP

_SWITCH = {"type": "boolean"}
_NUMBER = {"type": "integer", "format": "int64", "minimum": 0, "maximum": MAX_COUNT}
_TEXT = {"type": "string", "maxLength": 1024}
_MAPPING = {"type": "object", "maxProperties": 100, OPAQUE: True}

# All options of BullMQ. Those that our models do not have are declared too, so that a rule refuses
# them by name: the API server would drop an undeclared field, and not every client shows that.
BULLMQ_OPTIONS: dict[str, Schema] = {
    "parent": _MAPPING,
    "group": _MAPPING,
    "jobId": _TEXT,
    "deduplication": _MAPPING,
    "debounce": _MAPPING,
    "repeat": _MAPPING,
    "repeatJobKey": _TEXT,
    "failParentOnFailure": _SWITCH,
    "continueParentOnFailure": _SWITCH,
    "ignoreDependencyOnFailure": _SWITCH,
    "removeDependencyOnFailure": _SWITCH,
    "timestamp": _NUMBER,
    "prevMillis": _NUMBER,
    "sizeLimit": _NUMBER,
    "telemetry": _MAPPING,
    "attempts": _NUMBER,
    "backoff": _NUMBER,
    "delay": _NUMBER,
    "priority": _NUMBER,
    "lifo": _SWITCH,
    "removeOnComplete": _SWITCH,
    "removeOnFail": _SWITCH,
    "keepLogs": _NUMBER,
    "stackTraceLimit": _NUMBER,
}

_COLUMNS = (
    ("State", ".status.state", "string", 0),
    ("Progress", ".status.progress", "string", 0),
    ("Undone", ".status.undone", "string", 0),
    ("Failed Job", ".status.failure.jobName", "string", 0),
    REASON_COLUMN,
    ("Age", ".metadata.creationTimestamp", "date", 0),
    ("Group ID", ".status.groupId", "string", 1),
    ("Finished", ".status.finishedAt", "date", 1),
    ("Failure", ".status.failure.reason", "string", 1),
    MESSAGE_COLUMN,
)


def jobgroup_crd() -> dict[str, Any]:
    """Return the CRD of JobGroups."""
    version = {
        "schema": {"openAPIV3Schema": _root()},
        # Clients can list the groups of one state without reading all others.
        "selectableFields": [{"jsonPath": ".status.state"}],
    }
    return build_crd(JOBGROUP, version, _COLUMNS)


def _root() -> Schema:
    description = (
        "A JobGroup is a saga: a set of independent BullMQ jobs that all succeed, or whose effects"
        " are undone."
    )
    status = status_schema(JobGroupStatus)
    return object_schema(JOBGROUP, description, _spec(), status) | {RULES: rules.ROOT}


def _spec() -> Schema:
    spec = structural(JobGroupSpec)
    fields = spec["properties"]
    jobs, compensation = fields["jobs"], fields["compensation"]
    job, undo = jobs["items"], compensation["additionalProperties"]
    on_end = fields["onEnd"]
    end_job = on_end["items"]

    # With these defaults, rules treat a missing field as an empty one and its removal as a change.
    jobs["default"], compensation["default"] = [], {}
    jobs |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    # A job has one writer, and the owners of each field of 2,000 jobs would fill the object.
    opts = [each["properties"]["opts"] for each in (job, undo, end_job)]
    for mapping in (job, compensation, *opts):
        mapping["x-kubernetes-map-type"] = "atomic"
    # Ids of jobs contain the place of their entry.
    on_end["x-kubernetes-list-type"] = "atomic"
    end_job["properties"]["queueName"]["maxLength"] = MAX_QUEUE_NAME
    job["properties"]["queueName"]["maxLength"] = MAX_QUEUE_NAME
    undo["properties"]["queueName"]["maxLength"] = MAX_UNDO_QUEUE

    no_jobs = _refuse(job["properties"]["opts"], JobOptions, "a job in a group")
    no_undos = _refuse(undo["properties"]["opts"], RetryOptions, "an undo")
    # No rule can read a field without a type.
    answer = fields["complete"]["additionalProperties"]
    answer["not"] = {"required": ["returnValue", "failed"]}
    for mapping in (answer, fields["resolved"]["additionalProperties"]):
        mapping["x-kubernetes-map-type"] = "atomic"
    no_end_jobs = _refuse(end_job["properties"]["opts"], JobOptions, "a job of onEnd")
    spec[RULES] = [
        *rules.SPEC,
        *rules.VERBS,
        # These two have messages of their own.
        rules.refused_job_options([name for name in no_jobs if name not in ("parent", "group")]),
        rules.refused_undo_options(no_undos),
        rules.refused_end_options(no_end_jobs),
    ]
    fields["cancel"][RULES] = rules.CANCEL
    return spec


def _refuse(opts: Schema, model: type[RetryOptions], whose: str) -> list[str]:
    """Declare the BullMQ options that a model does not have, and return their names."""
    refused = [name for name in BULLMQ_OPTIONS if name not in model.model_fields]
    for name in refused:
        description = f"Refused: not an option of {whose}."
        opts["properties"][name] = {"description": description, **BULLMQ_OPTIONS[name]}
    return refused
