"""The recorded requests of a group -> lines of its status, and sentences. Pure.

A cancellation is part of the line that says why the group failed, so it has no line of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jobgroup.model.snapshot import GroupState, Record
from jobgroup.resource import reasons
from jobgroup.resource.conditions import sanitize

CANCEL = "cancel"
# As many as a status has room for, beside the creation, the failure and the end.
MAX_REQUESTS = 7

# The verb of a record -> the reason of its Event, and the sentence. `{job}` is the name of its job.
_SENTENCES = {
    "retryUndos": (reasons.UNDOS_RETRIED, "the failed undos{job} were retried"),
    "resolve": (reasons.UNDO_RESOLVED, "the undo{job} was resolved"),
    "complete": (reasons.JOB_ANSWERED, "the job{job} was completed without a worker"),
    "fail": (reasons.JOB_ANSWERED, "the job{job} was failed without a worker"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """A recorded request as people see it."""

    at: int
    reason: str
    message: str
    job: str  # the name of the job that it is about, or empty


def requests_of(group: GroupState, names: Mapping[str, str]) -> list[Request]:
    """Return the latest requests about a group, the oldest first; `names` are job names by id."""
    known = [each for each in group.records if each.verb in _SENTENCES]
    return [_request(each, group, names) for each in known[-MAX_REQUESTS:]]


def _request(record: Record, group: GroupState, names: Mapping[str, str]) -> Request:
    reason, sentence = _SENTENCES[record.verb]
    job = names.get(record.job, record.job)
    of = (f' of the job "{job}"' if "undo" in sentence else f' "{job}"') if job else ""
    message = sentence.format(job=of) + requester(record, group)
    return Request(record.at, reason, sanitize(f"{message}{why(record)}"), job)


def cancelled_by(group: GroupState) -> str:
    """Return who cancelled a group, as a part of a sentence; empty if nobody is known."""
    records = [each for each in group.records if each.verb == CANCEL]
    return requester(records[-1], group) if records else ""


def requester(record: Record, group: GroupState) -> str:
    """Return who made a request; empty if it was the group's own JobGroup, or if it is unknown."""
    return f" by {record.by}" if record.by not in ("", group.resource) else ""


def why(record: Record) -> str:
    """Return the reason that was given for a request."""
    return f": {record.reason}" if record.reason else ""
