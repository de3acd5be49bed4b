"""A checked definition and an id -> one packed argument of create_groups.lua.

All JSON is made here, and only here: Lua splices texts and never decodes what a user wrote, for its
numbers have fewer digits.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from typing import Any

import msgpack

from jobgroup.errors import InvalidSpecError
from jobgroup.spec import (
    Compensation,
    Group,
    Job,
    JobOptions,
    Keep,
    Retention,
    RetryOptions,
    undo_options,
)

# json.dumps makes such an encoder anew for every value.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

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


def plan_group(group: Group, group_id: str, owner: str = "headless") -> Plan:
    """Spell out every job and every undo that may follow."""
    tag = f'{{"id":"{group_id}","name":{to_json(group.name)}}}'
    members = [_member(job, tag, job.name in group.compensation) for job in group.jobs]
    ids = tuple(f"{group_id}-{n}" for n in range(len(group.jobs)))
    compensation, fields = _compensation(group, group_id) if group.compensation else ("{}", [])
    if retention := _retention(group.jobs, ids):
        fields += "retention", _pack(retention)
    packed = _pack([group_id, group.name, owner, compensation, members, fields])
    digest = sha1(packed, usedforsecurity=False).hexdigest()
    return Plan(group_id, group.name, packed, digest, ids)


def pack_plans(plans: Sequence[Plan]) -> bytes:
    """Make one argument of several plans."""
    return _pack([(plan.digest, plan.packed) for plan in plans])


def _pack(content: Sequence[Any]) -> bytes:
    """Write msgpack as Lua reads it: bytes are texts."""
    packed: bytes = msgpack.packb(content, use_bin_type=False)
    return packed


def to_json(value: Any) -> str:
    """Encode as compactly as BullMQ does."""
    try:
        text = _encode(value)
        text.encode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8, but JSON can escape it.
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidSpecError(f"data cannot be written as JSON: {error}") from None
    return text


def _data_to_json(data: Any) -> str:
    """Encode what a user wrote, if it comes back the same from JSON."""
    _check_nesting(data, MAX_DEPTH)
    return to_json(data)


def _check_nesting(value: Any, levels: int) -> None:
    """Refuse a key that JSON would make a text, and what is too deep for a worker to read."""
    if not isinstance(value, (dict, list, tuple)):
        return
    if levels == 0:
        raise InvalidSpecError(
            f"data cannot be written as JSON: it is nested more than {MAX_DEPTH} levels deep"
        )
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise InvalidSpecError(
                    f"data cannot be written as JSON: the key {key!r} is not a text"
                )
        value = value.values()
    for item in value:
        if isinstance(item, (dict, list, tuple)):
            _check_nesting(item, levels - 1)


def _member(job: Job, tag: str, has_undo: bool) -> list[Any]:
    opts = job.opts
    data = _data_to_json(job.data)
    text = f'{_options(opts)},"group":{tag}}}'
    # A character takes up to four bytes: few payloads have to be counted.
    long = len(data) + len(text) > MAX_PAYLOAD // 4
    if long and (size := len(data.encode()) + len(text.encode())) > MAX_PAYLOAD:
        raise InvalidSpecError(
            f"Job payload size {size / 1048576:.1f} MB exceeds limit of"
            f" {MAX_PAYLOAD / 1048576:.1f} MB"
        )
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
        if job.opts.removeOnComplete is not None or job.opts.removeOnFail is not None
    ]
    return [entry for entry in asked if any(entry[2:])]


def _keep(asked: Keep | None) -> tuple[Any, Any] | None:
    """Return how many jobs to keep and for how many seconds, False for any; None keeps all."""
    if isinstance(asked, Retention):
        count, age = (False if each is None else each for each in (asked.count, asked.age))
        return None if count is age is False else (count, age)
    if asked is None or asked is False:
        return None
    return (0 if asked is True else asked), False


def _undo(name: str, undo: Compensation, group_id: str) -> bytes:
    """Spell out what all undos of one mapping share, up to the id of the member and from there."""
    head = f'{{"groupId":"{group_id}","originalJobName":{to_json(name)},"originalJobId":"'
    tail = f',"compensationData":{_data_to_json(undo.data)}}}'
    parts = [undo.name, _undo_options(undo.opts), head, tail, undo.when == "Started"]
    return _pack(parts)


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
