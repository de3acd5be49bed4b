"""Replies of scripts -> values, or the exception for a refusal. The store calls it.

Scripts reply with JSON objects, which are read into dataclasses by name. Unknown names are ignored,
so that an older client reads the reply of a newer script. The names cost no time: Redis sends one
JSON text faster than an array of values without names.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from itertools import repeat
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from redis.exceptions import ResponseError

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
from jobgroup.model import names
from jobgroup.model.snapshot import GroupJob, GroupState, Settled, State
from jobgroup.store.connection import is_transient, lacks_right
from jobgroup.store.observer import Observer

# Refusals whose detail is the id of a group or the key of a job.
_WITH_SUBJECT = (
    GroupNotFoundError,
    GroupExistsError,
    GroupRemovedError,
    JobExistsError,
    NewerFormatError,
    RedisStateLostError,
)

# A group after the call, None if there is no such group, or the error that concerns this group.
SettleResult = Settled | Exception | None

Value = TypeVar("Value")


class _UnreadableError(Exception):
    """A reply lacks a field, or a field holds what its type does not allow."""


class _Field(NamedTuple):
    """One field of a dataclass, and how to read it from a reply."""

    attribute: str
    name: str
    convert: Callable[[Any], Any]
    default: Any  # MISSING if every reply must have the field


@cache
def _fields_of(kind: Any) -> tuple[_Field, ...]:
    """Return the fields of a dataclass in the order of its parameters."""
    types = get_type_hints(kind)
    found = []
    for field in fields(kind):
        hint = types[field.name]
        default = field.default
        if default is MISSING and NoneType in get_args(hint):
            default = None
        found.append(_Field(field.name, names.field_name(field.name), _converter(hint), default))
    return tuple(found)


def _converter(hint: Any) -> Callable[[Any], Any]:
    if isinstance(hint, UnionType) and len(kinds := set(get_args(hint)) - {NoneType}) == 1:
        return _converter(kinds.pop())
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_from_object, hint)
    if get_origin(hint) is dict:
        convert = _converter(get_args(hint)[1])
        return lambda values: {name: convert(value) for name, value in values.items()}
    if get_origin(hint) in (list, tuple):
        several, convert = get_origin(hint), _converter(get_args(hint)[0])
        # Lua writes an empty list as {}.
        return lambda values: several(map(convert, values))
    return hint if hint in (bool, int) else str


def _from_object(kind: Callable[..., Value], found: Mapping[str, Any]) -> Value:
    values = {}
    # Drivers read a group for every call, so this loop calls nothing but the converters.
    for attribute, name, convert, default in _fields_of(kind):
        value = found.get(name)
        if value is None:
            if default is MISSING:
                raise _UnreadableError(f"field {name} is missing")
            values[attribute] = default
        else:
            try:
                values[attribute] = convert(value)
            except (TypeError, ValueError):
                raise _UnreadableError(f"field {name} is {value!r}") from None
    return kind(**values)


def read_value(kind: type[Value], subject: str, reply: str) -> Value:
    """Read an object into a dataclass; raise CorruptKeyError if it does not fit."""
    try:
        return _from_object(kind, json.loads(reply))
    except _UnreadableError as error:
        raise CorruptKeyError(f"{subject} cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class GroupReply:
    """The reply of read_group.lua."""

    group: GroupState
    derived: State
    due: bool


def read_group(group_id: str, reply: str) -> GroupReply:
    """Read the reply of read_group.lua."""
    return read_value(GroupReply, f"Group {group_id}", reply)


def read_settled(group_id: str, reply: Any, observer: Observer) -> SettleResult:
    """Read the reply of a script that settles, and report a change to the observer."""
    if reply is None:
        return None
    if isinstance(reply, Exception):
        return newer_format(reply) or reply
    if isinstance(reply, int):
        settled = Settled(state="COMPLETED", entered=("COMPLETED",), changed=True, ran_for=reply)
    else:
        try:
            settled = read_value(Settled, f"Group {group_id}", reply)
        except CorruptKeyError as error:
            return error
    if settled.changed:
        observer.group_settled(settled)
    return settled


def read_jobs(group_id: str, reply: str) -> list[GroupJob]:
    """Read the columns of read_jobs.lua, in the order of the definition."""
    columns = json.loads(reply)
    try:
        attributes = [_column(field, columns.get(field.name)) for field in _fields_of(GroupJob)]
        jobs = [GroupJob(*row) for row in zip(*attributes, strict=False)]
        return sorted(jobs, key=lambda job: names.job_index(job.job_id))
    except (_UnreadableError, ValueError) as error:
        raise CorruptKeyError(f"The jobs of group {group_id} cannot be read: {error}") from None


def _column(field: _Field, values: Sequence[Any] | None) -> Iterable[Any]:
    if values is not None:
        return map(field.convert, values)
    if field.default is MISSING:
        raise _UnreadableError(f"field {field.name} is missing")
    return repeat(field.default)


class GroupReading(NamedTuple):
    """A group, its jobs and the incarnation of Redis, as far as they were asked for."""

    group: GroupState | None
    jobs: list[GroupJob] | None
    incarnation: str


def read_reading(
    group_id: str, replies: Sequence[Any], jobs: bool
) -> tuple[GroupReading, GroupReply | None]:
    """Read the replies of read_group, read_jobs if asked, and read_incarnation if asked.

    Also return the first of them, if there is a group.
    """
    group, *more = replies
    members = more.pop(0) if jobs else None
    for reply in (group, *more):
        if isinstance(reply, Exception):
            raise refusal(reply)
    incarnation = str(more[0]) if more else ""
    if not group or (jobs and members is None):  # it may have been removed in between
        return GroupReading(None, None, incarnation), None
    # Skip unreadable jobs: most callers need only the group, and Store.read_jobs raises the error.
    found = read_jobs(group_id, members) if isinstance(members, str) else None
    reply = read_group(group_id, group)
    return GroupReading(reply.group, found, incarnation), reply


def is_its_own(error: Exception) -> bool:
    """Return whether an error concerns the keys of one group, and not Redis as a whole."""
    concerns_redis = is_transient(error) or lacks_right(error)
    return isinstance(error, ResponseError) and not concerns_redis


def newer_format(error: Exception) -> NewerFormatError | None:
    """Return the exception if a script refused a group because of its format."""
    code, _, group_id = str(error).partition(" ")
    return NewerFormatError(group_id) if code == NewerFormatError.code else None


def refusal(error: Exception, otherwise: type[RefusedError] | None = None) -> RefusedError:
    """Return the exception for the code of an error reply; raise an error without such a code."""
    code, _, detail = str(error).partition(" ")
    for kind in _WITH_SUBJECT:
        if kind.code == code:
            return kind(detail)
    for other in (InvalidGroupStateError, InvalidJobStateError, JobNotFoundError):
        if other.code == code:
            return other(detail)
    if otherwise and is_its_own(error):
        return otherwise(str(error))
    raise error
