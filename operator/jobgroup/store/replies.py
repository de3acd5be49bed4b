"""What scripts answer about a group -> values, or the exception of what they refuse with.

The store calls it. What is wrong with one group's keys is told from what is wrong with Redis.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from redis.exceptions import ResponseError

from jobgroup.connection import is_transient
from jobgroup.errors import (
    GroupExistsError,
    GroupNotFoundError,
    GroupRemovedError,
    InvalidGroupStateError,
    JobExistsError,
    RedisStateLostError,
    RefusedError,
    SpoiltKeyError,
)
from jobgroup.snapshot import GroupJob, GroupState, Settled

# Refusals whose detail is what they are about, a group or a job.
_NAMING_WHAT = (
    GroupNotFoundError,
    GroupExistsError,
    GroupRemovedError,
    JobExistsError,
    RedisStateLostError,
)

Parsed = TypeVar("Parsed", GroupState, Settled)


class Found(NamedTuple):
    """A group as found just now, with as much beside it as was asked for."""

    group: GroupState | None
    jobs: list[GroupJob] | None
    epoch: str


def found_in(group_id: str, rows: Sequence[Any], jobs: bool) -> Found:
    """Read the answers to a look at a group."""
    row, *more = rows
    lines = more.pop(0) if jobs else None
    for answer in (row, *more):
        if isinstance(answer, Exception):
            raise refusal(answer)
    epoch = str(more[0]) if more else ""
    if not row or (jobs and lines is None):  # it may have been removed in between
        return Found(None, None, epoch)
    # What is wrong with its jobs alone is for whoever needs them to find out.
    members = GroupJob.parse_all(lines) if isinstance(lines, list) else None
    return Found(parsed(GroupState, group_id, row), members, epoch)


def parsed(kind: type[Parsed], group_id: str, row: Sequence[Any]) -> Parsed:
    """Read an answer about a group; one that makes no sense is that group's trouble alone."""
    try:
        return kind.parse(row)
    except (TypeError, ValueError) as error:
        raise SpoiltKeyError(f"Group {group_id} cannot be read: {error}") from None


def is_its_own(error: Exception) -> bool:
    """Say whether an error is about one group's keys and not about Redis as a whole."""
    return isinstance(error, ResponseError) and not is_transient(error)


def refusal(error: Exception, otherwise: type[RefusedError] | None = None) -> RefusedError:
    """Turn what a script said into the exception of its code; raise what is none of ours."""
    code, _, detail = str(error).partition(" ")
    for kind in _NAMING_WHAT:
        if kind.code == code:
            return kind(detail)
    if code == InvalidGroupStateError.code:
        return InvalidGroupStateError(detail)
    if otherwise and is_its_own(error):
        return otherwise(str(error))
    raise error
