"""A checked definition and an id -> a plan, which is an argument of create_groups.lua.

A plan is a msgpack map. All JSON that workers read is written here: Lua inserts texts and never
decodes the data of users, because its numbers have fewer digits.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgpack
import pydantic_core

from jobgroup.definition.digest import digest_group
from jobgroup.definition.options import (
    NO_OPTIONS,
    JobOptions,
    Keep,
    Retention,
    RetryOptions,
    undo_options,
)
from jobgroup.definition.spec import Compensation, Group, Job
from jobgroup.errors import InvalidSpecError
from jobgroup.model import names

# json.dumps would create such an encoder for every value.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_PLAIN = frozenset({str, bool, type(None)})
# pydantic_core cannot write larger integers.
_LARGE = 2**63
_PLAIN_CONTAINERS = frozenset({dict, list, tuple})

MAX_PAYLOAD = 10 * 1024 * 1024
# A depth that every JSON parser accepts.
MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """The argument of create_groups.lua for one group, and what its caller needs to know."""

    group_id: str
    group_name: str
    packed: bytes
    digest: str
    job_ids: tuple[str, ...]


def plan_group(
    group: Group, group_id: str, owner: str = names.HEADLESS, resource: str = ""
) -> Plan:
    """Plan all jobs and undos of a group; `resource` is the name that the owner uses for it."""
    tag = f'{{"id":"{group_id}","name":{to_json(group.name)}}}'
    members = [_member(job, tag, job.name in group.compensation) for job in group.jobs]
    ids = tuple(names.job_id(group_id, n) for n in range(len(group.jobs)))
    compensation, mappings = _compensation(group, group_id) if group.compensation else ("{}", [])
    owned = [] if owner == names.HEADLESS else ["owner", owner, "resource", resource]
    parent: list[str | bytes] = [*(owned or ("owner", owner))]
    if retention := _retention(group.jobs, ids):
        parent += "retention", pack(retention)
    packed = pack(
        {
            "id": group_id,
            "name": group.name,
            "compensation": compensation,
            "members": members,
            "mappings": mappings,
            "parent": parent,
            # Also in the group's hash, because somebody may delete the pseudo parent.
            "fields": owned,
        }
    )
    return Plan(group_id, group.name, packed, digest_group(group), ids)


def pack_plans(plans: Sequence[Plan]) -> bytes:
    """Pack several plans into one argument."""
    return pack([{"digest": plan.digest, "plan": plan.packed} for plan in plans])


def pack(content: Any) -> bytes:
    """Write msgpack for Lua, where bytes and texts are the same."""
    packed: bytes = msgpack.packb(content, use_bin_type=False)
    return packed


def to_json(value: Any) -> str:
    """Encode a text or options as compactly as BullMQ does."""
    return _data_to_json(value).decode()


def _data_to_json(data: Any) -> bytes:
    """Encode the data of a user; raise if reading it back would give another value."""
    try:
        if _is_plain(data, MAX_DEPTH):
            # Five times faster, but it also accepts values that are not JSON.
            return pydantic_core.to_json(data)
        return _encode(data).encode()
    except (UnicodeEncodeError, pydantic_core.PydanticSerializationError):
        # A lone surrogate has no UTF-8, but JSON can escape it.
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise InvalidSpecError(f"data cannot be written as JSON: {error}") from None


def _is_plain(value: Any, levels: int) -> bool:
    """Return whether a value consists of plain JSON types; raise if it cannot be JSON.

    Keys that JSON would turn into texts are refused, and data that is nested too deeply.
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


def _member(job: Job, tag: str, has_undo: bool) -> dict[str, Any]:
    opts = job.opts
    options = _NO_OPTIONS if opts is NO_OPTIONS else _options(opts)
    data = _data_to_json(job.data)
    text = f'{options},"group":{tag}}}'
    _check_size(len(data) + len(text.encode()))
    member: dict[str, Any] = {"queue": job.queueName, "name": job.name, "data": data, "opts": text}
    if opts.delay:
        member["delay"] = opts.delay
    if opts.priority:
        member["priority"] = opts.priority
    if opts.lifo:
        member["lifo"] = True
    if has_undo:
        member["undo"] = True
    return member


def _check_size(size: int) -> None:
    if size > MAX_PAYLOAD:
        raise InvalidSpecError(
            f"Job payload size {size / 1048576:.1f} MB exceeds limit of"
            f" {MAX_PAYLOAD / 1048576:.1f} MB"
        )


@lru_cache(maxsize=1024)
def _options(opts: JobOptions) -> str:
    """Write the options of a member without the closing brace."""
    return to_json({"attempts": 0, **_stock_options(opts)})[:-1]


def _compensation(group: Group, group_id: str) -> tuple[str, list[str | bytes]]:
    """Return the mappings as they were given in JSON, and the fields that make_undos.lua reads."""
    given: dict[str, Any] = {}
    undos: list[str | bytes] = []
    for name, undo in group.compensation.items():
        opts = undo.opts.model_dump(exclude_none=True)
        given[name] = {"name": undo.name, "data": undo.data, "opts": opts, "when": undo.when}
        undos += names.mapping_field(name), _undo(name, undo, group_id)
    return to_json(given), undos


def _retention(jobs: Sequence[Job], ids: Sequence[str]) -> list[dict[str, Any]]:
    """List which members may be removed once the group has ended; apply_retention.lua reads it."""
    entries = []
    for job, job_id in zip(jobs, ids, strict=True):
        if job.opts is not NO_OPTIONS:
            rules = {
                "on_complete": _keep(job.opts.removeOnComplete),
                "on_fail": _keep(job.opts.removeOnFail),
            }
            if asked := {name: rule for name, rule in rules.items() if rule}:
                entries.append({"queue": job.queueName, "id": job_id, **asked})
    return entries


def _keep(asked: Keep | None) -> dict[str, int]:
    """Return how many jobs to keep, and for how many seconds; an empty rule keeps all."""
    if isinstance(asked, Retention):
        return asked.model_dump(include={"count", "age"}, exclude_none=True)
    if asked is None or asked is False:
        return {}
    return {"count": 0 if asked is True else asked}


def _undo(name: str, undo: Compensation, group_id: str) -> bytes:
    """Pack what all undos of a mapping share; make_undos.lua joins head, id, result and tail."""
    head = f'{{"groupId":"{group_id}","originalJobName":{to_json(name)},"originalJobId":"'
    tail = b',"compensationData":' + _data_to_json(undo.data) + b"}"
    _check_size(len(tail))
    return pack(
        {
            "name": undo.name,
            "opts": _undo_options(undo.opts),
            "head": head,
            "tail": tail,
            "from_start": undo.when == "Started",
        }
    )


@lru_cache(maxsize=1024)
def _undo_options(given: RetryOptions) -> str:
    """Write the options of an undo, with our own defaults."""
    return to_json(_stock_options(undo_options(given)))


def _stock_options(opts: RetryOptions) -> dict[str, Any]:
    """Return options under the names that BullMQ stores.

    Retention is applied only after the end of the group: a removed job could not be undone.
    """
    chosen = opts.model_dump(exclude_none=True)
    if isinstance(opts.backoff, int):
        chosen["backoff"] = {"type": "fixed", "delay": opts.backoff}
    if "keepLogs" in chosen:
        chosen["kl"] = chosen.pop("keepLogs")
    return {**chosen, "removeOnComplete": False, "removeOnFail": False}


# Most jobs have no options, and hashing empty options is slower than the rest of a plan.
_NO_OPTIONS = _options(NO_OPTIONS)
