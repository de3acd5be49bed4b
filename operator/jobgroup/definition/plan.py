"""A checked definition and an id -> one packed argument of create_groups.lua.

All JSON is made here, and only here: Lua splices texts and never decodes what a user wrote, for its
numbers have fewer digits.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from typing import Any, Literal

import msgpack
import pydantic_core

from jobgroup.errors import InvalidSpecError
from jobgroup.options import (
    NO_OPTIONS,
    JobOptions,
    Keep,
    Retention,
    RetryOptions,
    undo_options,
)
from jobgroup.spec import Compensation, Group, Job

# json.dumps makes such an encoder anew for every value.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_PLAIN = frozenset({str, bool, type(None)})
# Larger numbers are rare, and some cannot be written at all.
_LARGE = 2**63
_PLAIN_CONTAINERS = frozenset({dict, list, tuple})

MAX_PAYLOAD = 10 * 1024 * 1024
# What any JSON reader takes, whatever is already on its stack.
MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """What create_groups.lua needs, and what its caller is told."""

    group_id: str
    group_name: str
    packed: bytes
    digest: str
    job_ids: tuple[str, ...]


def plan_group(group: Group, group_id: str, owner: str = "headless", resource: str = "") -> Plan:
    """Spell out every job and every undo that may follow; a resource is its owner's name for it."""
    tag = f'{{"id":"{group_id}","name":{to_json(group.name)}}}'
    members = [_member(job, tag, job.name in group.compensation) for job in group.jobs]
    ids = tuple(f"{group_id}-{n}" for n in range(len(group.jobs)))
    compensation, fields = _compensation(group, group_id) if group.compensation else ("{}", [])
    if retention := _retention(group.jobs, ids):
        fields += "retention", pack(retention)
    if resource:
        fields += "resource", resource
    packed = pack([group_id, group.name, owner, compensation, members, fields])
    digest = sha1(packed, usedforsecurity=False).hexdigest()
    return Plan(group_id, group.name, packed, digest, ids)


def pack_plans(plans: Sequence[Plan]) -> bytes:
    """Make one argument of several plans."""
    return pack([(plan.digest, plan.packed) for plan in plans])


def pack(content: Sequence[Any]) -> bytes:
    """Write msgpack as Lua reads it: bytes are texts."""
    packed: bytes = msgpack.packb(content, use_bin_type=False)
    return packed


def to_json(value: Any) -> str:
    """Encode a text or options of ours as compactly as BullMQ does."""
    return _data_to_json(value).decode()


def _data_to_json(data: Any) -> bytes:
    """Encode what a user wrote, if it comes back the same from JSON."""
    try:
        if _is_plain(data, MAX_DEPTH):
            # Five times faster, but it would also take what is no JSON.
            return pydantic_core.to_json(data)
        return _encode(data).encode()
    except (UnicodeEncodeError, pydantic_core.PydanticSerializationError):
        # A lone surrogate has no UTF-8, but JSON can escape it.
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise InvalidSpecError(f"data cannot be written as JSON: {error}") from None


def _is_plain(value: Any, levels: int) -> bool:
    """Say whether a value is JSON's own kinds all through.

    A key that JSON would make a text is refused, and what is too deep for a worker to read.
    """
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is int or kind is float:
        return bool(-_LARGE < value < _LARGE)
    if not isinstance(value, (dict, list, tuple)):
        return False
    if levels == 0:
        raise InvalidSpecError(
            f"data cannot be written as JSON: it is nested more than {MAX_DEPTH} levels deep"
        )
    plain = kind in _PLAIN_CONTAINERS
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise InvalidSpecError(
                    f"data cannot be written as JSON: the key {key!r} is not a text"
                )
            plain = plain and type(key) is str
        value = value.values()
    for item in value:
        if type(item) not in _PLAIN and not _is_plain(item, levels - 1):
            plain = False
    return plain


def _member(job: Job, tag: str, has_undo: bool) -> list[Any]:
    opts = job.opts
    options = _NO_OPTIONS if opts is NO_OPTIONS else _options(opts)
    data = _data_to_json(job.data)
    text = f'{options},"group":{tag}}}'
    _check_size(len(data) + len(text.encode()))
    return [
        job.queueName,
        job.name,
        data,
        text,
        opts.delay or False,
        opts.priority or False,
        bool(opts.lifo),
        has_undo,
    ]


def _check_size(size: int) -> None:
    if size > MAX_PAYLOAD:
        raise InvalidSpecError(
            f"Job payload size {size / 1048576:.1f} MB exceeds limit of"
            f" {MAX_PAYLOAD / 1048576:.1f} MB"
        )


@lru_cache(maxsize=1024)
def _options(opts: JobOptions) -> str:
    """Spell a member's options, open at the end."""
    return to_json({"attempts": 0, **_stock_options(opts)})[:-1]


def _compensation(group: Group, group_id: str) -> tuple[str, list[str | bytes]]:
    """Spell the mappings out as they were given, and as fields of what their undos share."""
    given: dict[str, Any] = {}
    undos: list[str | bytes] = []
    for name, undo in group.compensation.items():
        opts = undo.opts.model_dump(exclude_none=True)
        given[name] = {"name": undo.name, "data": undo.data, "opts": opts, "when": undo.when}
        undos += f"undo:{name}", _undo(name, undo, group_id)
    return to_json(given), undos


def _retention(jobs: Sequence[Job], ids: Sequence[str]) -> list[Any]:
    """List what members ask to become of them once the group has ended."""
    asked = [
        (job.queueName, job_id, _keep(job.opts.removeOnComplete), _keep(job.opts.removeOnFail))
        for job, job_id in zip(jobs, ids, strict=True)
        if job.opts is not NO_OPTIONS
    ]
    return [entry for entry in asked if any(entry[2:])]


def _keep(asked: Keep | None) -> tuple[Any, Any] | Literal[False]:
    """Return how many jobs to keep and for how many seconds, False for any; False keeps all."""
    if isinstance(asked, Retention):
        count, age = (False if each is None else each for each in (asked.count, asked.age))
        return False if count is age is False else (count, age)
    if asked is None or asked is False:
        return False
    return (0 if asked is True else asked), False


def _undo(name: str, undo: Compensation, group_id: str) -> bytes:
    """Spell out what all undos of one mapping share, up to the id of the member and from there."""
    head = f'{{"groupId":"{group_id}","originalJobName":{to_json(name)},"originalJobId":"'
    tail = b',"compensationData":' + _data_to_json(undo.data) + b"}"
    _check_size(len(tail))
    parts = [undo.name, _undo_options(undo.opts), head, tail, undo.when == "Started"]
    return pack(parts)


@lru_cache(maxsize=1024)
def _undo_options(given: RetryOptions) -> str:
    """Spell an undo's options, with our own defaults."""
    return to_json(_stock_options(undo_options(given)))


def _stock_options(opts: RetryOptions) -> dict[str, Any]:
    """Name options as BullMQ stores them.

    What they ask of retention waits until the group has ended: a swept job could not be undone.
    """
    chosen = opts.model_dump(exclude_none=True)
    if isinstance(opts.backoff, int):
        chosen["backoff"] = {"type": "fixed", "delay": opts.backoff}
    if "keepLogs" in chosen:
        chosen["kl"] = chosen.pop("keepLogs")
    return {**chosen, "removeOnComplete": False, "removeOnFail": False}


# Most jobs have none; hashing them to find that out costs more than all else about them.
_NO_OPTIONS = _options(NO_OPTIONS)
