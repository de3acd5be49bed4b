"""The CEL rules of a JobGroup: what the API server refuses, and the sentence it says.

Each stays within the server's budget for an object of 2,000 jobs and as many compensations. They
stand on whole lists: a rule of each job would be started 2,000 times, at every write of a status
too. Pure; crd.py puts them in place.
"""

from collections.abc import Sequence
from typing import Any

from jobgroup import keys
from jobgroup.errors import EmptyGroupError, JobInFlowError

Rule = dict[str, Any]


def on_create(rule: str, **rest: str) -> Rule:
    """Make a rule that only a new object pays for; what it looks at cannot be changed later."""
    return {"rule": f"oldSelf.hasValue() || {rule}", "optionalOldSelf": True, **rest}


def _fixed(field: str) -> str:
    return f"{field} cannot be changed: make a new JobGroup"


# A one-element list is CEL's way of giving a value a name: a map of all job names, made once. To
# look each key up in the list instead would cost the square of the jobs, beyond any budget.
_NAMES = "[self.jobs.transformMapEntry(i, j, {j.name: true})]"

_STATE = "has(self.status) && has(self.status.state)"


# Only a write of the status changes the status, and such a write changes nothing else: it need not
# pay for comparing 2,000 jobs. Nearly all of them change one of these. To compare whole statuses
# would catch the rest, but costs more than to compare the jobs of most groups. There always is a
# status, for it has a default.
def _moved(field: str) -> str:
    new, old = f"self.status.{field}", f"oldSelf.status.{field}"
    return f"has({new}) && (!has({old}) || {new} != {old})"


_STATUS_WRITE = " || ".join(f"({_moved(field)})" for field in ("state", "progress", "undone"))

ROOT: list[Rule] = [
    # Lists that are keyed by name are equal in any order, but a job's id is made of its place.
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
        "message": "Cannot suspend a group whose jobs were let go",
        "fieldPath": ".spec.suspend",
    },
]

SPEC: list[Rule] = [
    # Not a rule of the list itself: its default, an empty one, must be valid there.
    on_create("size(self.jobs) > 0", message=str(EmptyGroupError()), fieldPath=".jobs"),
    on_create(
        f"{_NAMES}.all(names, self.compensation.all(k, k in names))",
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
        f"self.jobs.all(j, j.queueName != '{keys.BOOKS}')",
        message=f'The queue "{keys.BOOKS}" is reserved',
        messageExpression=f"'Job \"' + self.jobs.filter(j, j.queueName == '{keys.BOOKS}')[0].name"
        f' + \'": the queue "{keys.BOOKS}" is reserved\'',
        fieldPath=".jobs",
    ),
    # Of a field that may be missing, a rule of its own would not see that it came or went.
    {
        "rule": "has(self.name) == has(oldSelf.name)"
        " && (!has(self.name) || self.name == oldSelf.name)",
        "message": _fixed("name"),
        "fieldPath": ".name",
    },
]

CANCEL: list[Rule] = [
    {"rule": "self || !oldSelf", "message": "cancel cannot be taken back"},
]


def refused_job_options(options: Sequence[str]) -> Rule:
    """Refuse by name what no job of a group may be told."""
    found = _found(options, "j")
    return on_create(
        f"!self.jobs.exists(j, {found})",
        message="A job has an option that is not one of a job in a group",
        messageExpression=f"[self.jobs.filter(j, {found})[0]].map(j, 'Job \"' + j.name"
        f" + '\": opts.' + ({_first(options, 'j')}) + ' is not an option of a job in a group')[0]",
        fieldPath=".jobs",
    )


def refused_undo_options(options: Sequence[str]) -> Rule:
    """Refuse by name what no undo may be told."""
    found = _found(options, "undo")
    return on_create(
        f"!self.compensation.exists(k, undo, {found})",
        message="A compensation has an option that is not one of an undo",
        messageExpression=f"self.compensation.transformList(k, undo, {found}, 'Compensation \"' + k"
        f" + '\": opts.' + ({_first(options, 'undo')}) + ' is not an option of an undo')[0]",
        fieldPath=".compensation",
    )


def _found(options: Sequence[str], whose: str) -> str:
    return f"has({whose}.opts) && [{whose}.opts].exists(o, " + (
        " || ".join(f"has(o.{option})" for option in options) + ")"
    )


def _first(options: Sequence[str], whose: str) -> str:
    *others, last = options
    return "".join(f"has({whose}.opts.{option}) ? '{option}' : " for option in others) + f"'{last}'"
