"""The CEL rules of a JobGroup and their messages; jobgroup.py adds them to the schema. Pure.

Each rule stays within the cost limit of the API server for 2,000 jobs and as many compensations.
Rules apply to whole lists: the server would evaluate a rule for each job 2,000 times, also when
only the status is written.
"""

from collections.abc import Sequence
from typing import Any

from jobgroup.definition.spec import RESERVED_QUEUES
from jobgroup.errors import EmptyGroupError, JobInFlowError
from jobgroup.model.names import LEDGER_QUEUE

Rule = dict[str, Any]


def on_create(rule: str, **rest: str) -> Rule:
    """Return a rule that is evaluated only on creation, because its fields are immutable."""
    return {"rule": f"oldSelf.hasValue() || {rule}", "optionalOldSelf": True, **rest}


def _fixed(field: str) -> str:
    return f"{field} cannot be changed: create a new JobGroup"


# A list of one element binds a value to a variable in CEL: here a map of all job names, built once.
# Searching the list for each key would be quadratic in the jobs and exceed the cost limit.
_NAMES = "[self.jobs.transformMapEntry(i, j, {j.name: true})]"

_STATE = "has(self.status) && has(self.status.state)"


# A write of the status cannot change the spec, so these rules skip the comparison of up to 2,000
# jobs if the status changed. Nearly all writes of a status change one of these three fields.
# Comparing whole statuses would cost more than comparing the jobs of most groups. The status always
# exists, because it has a default.
def _moved(field: str) -> str:
    new, old = f"self.status.{field}", f"oldSelf.status.{field}"
    return f"has({new}) && (!has({old}) || {new} != {old})"


_STATUS_WRITE = " || ".join(f"({_moved(field)})" for field in ("state", "progress", "undone"))

# Whether an undo is to be added to a queue of the ledger.
_RESERVED = f"has(undo.queueName) && undo.queueName in {sorted(RESERVED_QUEUES)}"

ROOT: list[Rule] = [
    # Lists with a map key are equal in any order, but the id of a job contains its position.
    {
        "rule": f"{_STATUS_WRITE} || (self.spec.jobs == oldSelf.spec.jobs"
        " && self.spec.jobs.map(j, j.name) == oldSelf.spec.jobs.map(j, j.name))",
        "message": _fixed("jobs"),
        "fieldPath": ".spec.jobs",
    },
    {
        "rule": f"{_STATUS_WRITE} || self.spec.compensation == oldSelf.spec.compensation",
        "message": _fixed("compensation"),
        "fieldPath": ".spec.compensation",
    },
    {
        "rule": "!self.spec.cancel || oldSelf.spec.cancel"
        f" || !({_STATE}) || self.status.state in ['PENDING', 'ACTIVE']",
        "message": "Cannot cancel a group that is no longer active",
        "messageExpression": "self.status.state == 'COMPLETED' ? 'Cannot cancel a completed group'"
        " : 'Cannot cancel group in state ' + self.status.state",
        "fieldPath": ".spec.cancel",
    },
    {
        "rule": "!self.spec.suspend || oldSelf.spec.suspend"
        f" || !({_STATE}) || self.status.state == 'PENDING'",
        "message": "Cannot suspend a group whose jobs are already in Redis",
        "fieldPath": ".spec.suspend",
    },
]

SPEC: list[Rule] = [
    # Not a rule of the list itself: its default, an empty list, must be valid there.
    on_create("size(self.jobs) > 0", message=str(EmptyGroupError()), fieldPath=".jobs"),
    on_create(
        # The map fails if two jobs have the same name, which has an error of its own.
        "(size(self.compensation) == 0"
        f" || {_NAMES}.all(names, self.compensation.all(k, k in names)))",
        message="A compensation key does not match any job name",
        messageExpression=f"{_NAMES}.map(names, 'Compensation key \"'"
        " + self.compensation.filter(k, !(k in names))[0]"
        " + '\" does not match any job name')[0]",
        fieldPath=".compensation",
    ),
    on_create(
        "self.jobs.all(j, !has(j.opts) || !has(j.opts.parent))",
        message=str(JobInFlowError()),
        fieldPath=".jobs",
    ),
    on_create(
        "self.jobs.all(j, !has(j.opts) || !has(j.opts.group))",
        message="A job already belongs to a group",
        messageExpression="'Job \"' + self.jobs.filter(j, has(j.opts) && has(j.opts.group))[0].name"
        " + '\" already belongs to a group'",
        fieldPath=".jobs",
    ),
    on_create(
        f"self.jobs.all(j, j.queueName != '{LEDGER_QUEUE}')",
        message=f'The queue "{LEDGER_QUEUE}" is reserved',
        messageExpression=f"'Job \"' + self.jobs.filter(j, j.queueName == '{LEDGER_QUEUE}')[0].name"
        f' + \'": the queue "{LEDGER_QUEUE}" is reserved\'',
        fieldPath=".jobs",
    ),
    on_create(
        f"!self.compensation.exists(k, undo, {_RESERVED})",
        message="The queue of an undo is reserved",
        messageExpression=f"self.compensation.transformList(k, undo, {_RESERVED}, 'Compensation \"'"
        " + k + '\": the queue \"' + undo.queueName + '\" is reserved')[0]",
        fieldPath=".compensation",
    ),
    on_create(
        f"!has(self.onEnd) || self.onEnd.all(j, j.queueName != '{LEDGER_QUEUE}')",
        message=f'onEnd: the queue "{LEDGER_QUEUE}" is reserved',
        fieldPath=".onEnd",
    ),
    {
        "rule": "has(self.onEnd) == has(oldSelf.onEnd)"
        " && (!has(self.onEnd) || self.onEnd == oldSelf.onEnd)",
        "message": _fixed("onEnd"),
        "fieldPath": ".onEnd",
    },
    # A rule of the optional field itself would not be evaluated when the field is added or removed.
    {
        "rule": "has(self.name) == has(oldSelf.name)"
        " && (!has(self.name) || self.name == oldSelf.name)",
        "message": _fixed("name"),
        "fieldPath": ".name",
    },
]

# Requests are for one object; a copy must not carry them to another.
VERBS: list[Rule] = [
    on_create(
        "!has(self.complete)",
        message="complete cannot be set on creation: set it when the JobGroup exists",
        fieldPath=".complete",
    ),
    {
        "rule": "!has(self.complete) || size(self.complete) == 0"
        f" || {_NAMES}.all(names, self.complete.all(k, k in names))",
        "message": "A key of complete does not match any job name",
        "messageExpression": f"{_NAMES}.map(names, 'Key \"'"
        " + self.complete.filter(k, !(k in names))[0]"
        " + '\" of complete does not match any job name')[0]",
        "fieldPath": ".complete",
    },
    on_create(
        "!has(self.retryUndos)",
        message="retryUndos cannot be set on creation: set it when undos have failed",
        fieldPath=".retryUndos",
    ),
    on_create(
        "!has(self.resolved)",
        message="resolved cannot be set on creation: set it when the JobGroup exists",
        fieldPath=".resolved",
    ),
    {
        "rule": "!has(self.resolved) || self.resolved.all(k, k in self.compensation)",
        "message": "A key of resolved is not in compensation",
        "messageExpression": "'Key \"'"
        " + self.resolved.filter(k, !(k in self.compensation))[0]"
        " + '\" of resolved is not in compensation'",
        "fieldPath": ".resolved",
    },
]

CANCEL: list[Rule] = [
    {"rule": "self || !oldSelf", "message": "cancel cannot be set back to false"},
]


def refused_job_options(options: Sequence[str]) -> Rule:
    """Return a rule that refuses these options of jobs by name."""
    found = _found(options, "j")
    return on_create(
        f"!self.jobs.exists(j, {found})",
        message="A job has an option that is not supported in a group",
        messageExpression=f"[self.jobs.filter(j, {found})[0]].map(j, 'Job \"' + j.name"
        f" + '\": opts.' + ({_first(options, 'j')}) + ' is not an option of a job in a group')[0]",
        fieldPath=".jobs",
    )


def refused_undo_options(options: Sequence[str]) -> Rule:
    """Return a rule that refuses these options of undos by name."""
    found = _found(options, "undo")
    return on_create(
        f"!self.compensation.exists(k, undo, {found})",
        message="A compensation has an option that is not supported for an undo",
        messageExpression=f"self.compensation.transformList(k, undo, {found}, 'Compensation \"' + k"
        f" + '\": opts.' + ({_first(options, 'undo')}) + ' is not an option of an undo')[0]",
        fieldPath=".compensation",
    )


def refused_end_options(options: Sequence[str]) -> Rule:
    """Return a rule that refuses these options of jobs of onEnd by name."""
    found = _found(options, "j")
    return on_create(
        f"(!has(self.onEnd) || !self.onEnd.exists(j, {found}))",
        message="A job of onEnd has an option that is not supported",
        messageExpression=f"[self.onEnd.filter(j, {found})[0]].map(j, 'onEnd \"' + j.name"
        f" + '\": opts.' + ({_first(options, 'j')}) + ' is not an option of a job of onEnd')[0]",
        fieldPath=".onEnd",
    )


def _found(options: Sequence[str], whose: str) -> str:
    return f"has({whose}.opts) && [{whose}.opts].exists(o, " + (
        " || ".join(f"has(o.{option})" for option in options) + ")"
    )


def _first(options: Sequence[str], whose: str) -> str:
    *others, last = options
    return "".join(f"has({whose}.opts.{option}) ? '{option}' : " for option in others) + f"'{last}'"
