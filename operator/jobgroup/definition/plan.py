"""A checked definition and an id -> a plan, which is an argument of create_groups.lua.

A plan is a msgpack map. All JSON that workers read is written here: Lua inserts texts and never
decodes the data of users, because its numbers have fewer digits.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgpack
import pydantic_core

from jobgroup.definition.digest import digest_in_slices
from jobgroup.definition.lifetime import UNLIMITED, Lifetime
from jobgroup.definition.options import NO_OPTIONS, JobOptions, Keep, Retention, RetryOptions
from jobgroup.definition.slices import Pace, Sliced, finish
from jobgroup.definition.spec import Compensation, EndJob, Group, Job, own_undo_queues
from jobgroup.errors import InvalidSpecError
from jobgroup.model import names

# json.dumps would create such an encoder for every value.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_PLAIN = frozenset({str, bool, type(None)})
# pydantic_core cannot write larger integers.
_LARGE = 2**63
_PLAIN_CONTAINERS = frozenset({dict, list, tuple})

# The format of groups with undos in other than default queues, where drivers that know only format
# 1 would not look for them, or with onEnd, whose jobs these drivers would not add.
_FORMAT = ("format", "2")
MAX_END_DATA = 64 * 1024
MAX_PAYLOAD = 10 * 1024 * 1024
# Each call that adds undos reads all mappings of the group. With 2,000 of them and this size, it
# takes Redis 20 to 30 ms. One undo with the largest payload is still allowed.
MAX_MAPPINGS = 12 * 1024 * 1024
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
    group: Group,
    group_id: str,
    owner: str = names.HEADLESS,
    resource: str = "",
    is_id_generated: bool = False,
    lifetime: Lifetime = UNLIMITED,
) -> Plan:
    """Plan all jobs and undos of a group; `resource` is the name that the owner uses for it."""
    return finish(plan_in_slices(group, group_id, owner, resource, is_id_generated, lifetime))


def plan_in_slices(
    group: Group,
    group_id: str,
    owner: str,
    resource: str,
    is_id_generated: bool = False,
    lifetime: Lifetime = UNLIMITED,
) -> Sliced[Plan]:
    """Return what plan_group returns; take breaks."""
    tag = f'{{"id":"{group_id}","name":{to_json(group.name)}}}'
    members, sizes, pace = [], [], Pace()
    for job in group.jobs:
        members.append(_member(job, tag))
        sizes.append(len(members[-1]["data"]))
        if pace.ends_with(sizes[-1]):
            yield
    yield
    undos, places = yield from _undos(group.compensation)
    ids = tuple(names.job_id(group_id, n) for n in range(len(group.jobs)))
    digest = ""
    if not is_id_generated:  # nobody creates another definition with a generated id
        undo_sizes = {name: len(text) for name, text in undos.items()}
        digest = yield from digest_in_slices(group, sizes, undo_sizes)
    yield
    # Also in the group's hash, because somebody may delete the pseudo parent.
    owned = [] if owner == names.HEADLESS else ["owner", owner, "resource", resource]
    parent: list[Any] = [*owned, "members", _members_with_undo(group)]
    fields: list[Any] = [*owned, "digest", digest] if digest else [*owned]
    fields += lifetime.fields()
    if lifetime.ttl is not None:
        parent += "ttlSeconds", lifetime.ttl
    if own_undo_queues(group) or group.onEnd:
        parent += _FORMAT
        fields += _FORMAT
    if undos:
        fields += "undos", to_json([places.get(job.name, 0) for job in group.jobs])
    if retention := _retention(group.jobs, ids):
        parent += "retention", to_json(retention)
    yield
    plan: dict[str, Any] = {
        "id": group_id,
        "name": group.name,
        "compensation": b"{" + b",".join(undos.values()) + b"}",
        "members": members,
        "parent": parent,
        "fields": fields,
    }
    if lifetime.deadline is not None:
        plan["deadline"] = lifetime.deadline
    if group.onEnd:
        fields += "onEnd", "1"
        plan["on_end"] = _data_to_json([_end_job(n, job) for n, job in enumerate(group.onEnd)])
        plan["end_queues"] = [job.queueName for job in group.onEnd]
    packed = pack(plan)
    yield
    return Plan(group_id, group.name, packed, digest, ids)


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


def _member(job: Job, tag: str) -> dict[str, Any]:
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
    return member


def _end_job(index: int, job: EndJob) -> dict[str, Any]:
    """Return an entry of onEnd as lua/includes/add_end_jobs.lua reads it."""
    data = _data_to_json(job.data)
    if len(data) > MAX_END_DATA:
        size = -(-len(data) // 1024)
        raise InvalidSpecError(f"onEnd[{index}].data has {size} KB; the limit is 64 KB")
    places = job.opts.model_dump(include={"delay", "priority", "lifo"})
    return {
        "when": job.when,
        "queue": job.queueName,
        "name": job.name,
        "opts": to_json({"attempts": 0, **_stock_options(job.opts)}),
        "data": data.decode(),
        **{name: value for name, value in places.items() if value},
    }


def _check_size(size: int) -> None:
    if size > MAX_PAYLOAD:
        raise InvalidSpecError(
            f"Job payload size {size / 1048576:.1f} MB exceeds limit of"
            f" {MAX_PAYLOAD / 1048576:.1f} MB"
        )


@lru_cache(maxsize=1024)
def _options(opts: JobOptions) -> str:
    """Write the options of a member without the closing brace.

    Retention is applied only after the end of the group: a removed job could not be undone. Each
    byte is stored once a member: to keep -1 jobs means to keep all, as false does, and a client
    that finds no `attempts` takes the default that it would have stored.
    """
    kept = {"removeOnComplete": -1, "removeOnFail": False}
    return to_json({**_stock_options(opts), **kept})[:-1]


def _undos(mappings: Mapping[str, Compensation]) -> Sliced[tuple[dict[str, bytes], dict[str, int]]]:
    """Return the JSON of each mapping, and its place in the text of all, counted from 1.

    lua/includes/undo_mappings.lua cuts the text into its parts, so their order matters.
    """
    texts: dict[str, bytes] = {}
    places, place, pace = {}, len("{") + 1, Pace()
    for name, undo in mappings.items():
        data = _data_to_json(undo.data)
        _check_size(len(data))
        # What was given, but with the data last: its text may be long.
        given = undo.model_dump(exclude={"data"}, exclude_unset=True, exclude_none=True)
        head = f'{to_json(name)}:{to_json(given)[:-1]},"data":'
        texts[name] = head.encode() + data + b"}"
        places[name] = place
        place += len(texts[name]) + len(",")
        if place - len(",") > MAX_MAPPINGS:
            raise InvalidSpecError(
                f"compensation has more than {MAX_MAPPINGS // 1048576} MB of JSON, which is the"
                " limit for all undos of a group: let their data name where to find the rest"
            )
        if pace.ends_with(len(texts[name])):
            yield
    yield
    return texts, places


def _members_with_undo(group: Group) -> str:
    """Return a digit for each job: 0 if it has no undo, 2 if starting is enough for it, else 1."""
    digits = {name: "12"[undo.when == "Started"] for name, undo in group.compensation.items()}
    return "".join([digits.get(job.name, "0") for job in group.jobs])


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


def _stock_options(opts: RetryOptions) -> dict[str, Any]:
    """Return options under the names that BullMQ stores."""
    chosen = opts.model_dump(exclude_none=True)
    if isinstance(opts.backoff, int):
        chosen["backoff"] = {"type": "fixed", "delay": opts.backoff}
    if "keepLogs" in chosen:
        chosen["kl"] = chosen.pop("keepLogs")
    return chosen


# Most jobs have no options, and hashing empty options is slower than the rest of a plan.
_NO_OPTIONS = _options(NO_OPTIONS)
