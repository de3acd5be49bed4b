"""A checked definition and an id -> the one packed argument of create_group.lua.

All JSON is made here, and only here: Lua splices texts and never decodes what a user wrote, for its
numbers have fewer digits.
"""

import json
from dataclasses import dataclass
from typing import Any

import msgpack

from jobgroup.errors import InvalidSpecError
from jobgroup.spec import Backoff, Compensation, Group, Job, RetryOptions, check_backoff

MAX_PAYLOAD = 10 * 1024 * 1024
UNDO_ATTEMPTS = 3
UNDO_BACKOFF = Backoff(type="exponential", delay=1000)


@dataclass(frozen=True, slots=True)
class Plan:
    """What create_group.lua needs, and what its caller is told."""

    group_id: str
    group_name: str
    packed: bytes
    job_ids: tuple[str, ...]


def plan_group(group: Group, group_id: str, owner: str = "headless") -> Plan:
    """Spell out every job and every undo that may follow."""
    tag = to_json({"id": group_id, "name": group.name})
    undos = {name: _undo_parts(undo, group_id) for name, undo in group.compensation.items()}
    members = [
        _member(job, f"{group_id}-{n}", tag, undos.get(job.name))
        for n, job in enumerate(group.jobs)
    ]
    compensation = to_json(
        {name: undo.model_dump(exclude_none=True) for name, undo in group.compensation.items()}
    )
    packed: bytes = msgpack.packb([group_id, group.name, owner, compensation, members])
    ids = tuple(f"{group_id}-{n}" for n in range(len(group.jobs)))
    return Plan(group_id, group.name, packed, ids)


def to_json(value: Any) -> str:
    """Encode as compactly as BullMQ does."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8, but JSON can escape it.
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidSpecError(f"data cannot be written as JSON: {error}") from None
    return text


def _member(
    job: Job, job_id: str, tag: str, undo: "tuple[str, str, str, str, bool] | None"
) -> list[Any]:
    opts = job.opts
    data = to_json(job.data)
    text = _member_options(job, tag)
    size = len(data.encode()) + len(text.encode())
    if size > MAX_PAYLOAD:
        raise InvalidSpecError(
            f"Job payload size {size / 1048576:.1f} MB exceeds limit of"
            f" {MAX_PAYLOAD / 1048576:.1f} MB"
        )
    template: list[Any] | bool = False
    if undo:
        name, undo_opts, start, tail, from_start = undo
        head = (
            f'{start}"originalJobName":{to_json(job.name)},"originalJobId":"{job_id}"'
            ',"originalReturnValue":'
        )
        template = [name, undo_opts, head, tail, from_start]
    return [
        job.queueName,
        job.name,
        data,
        text,
        opts.delay or 0,
        opts.priority or 0,
        bool(opts.lifo),
        template,
    ]


def _member_options(job: Job, tag: str) -> str:
    """Spell a member's options as stock clients read them.

    What it asks of retention waits until the group has ended: a swept job could not be undone.
    """
    chosen = job.opts.model_dump(exclude_none=True, exclude={"removeOnComplete", "removeOnFail"})
    if "keepLogs" in chosen:
        chosen["kl"] = chosen.pop("keepLogs")
    rest = to_json({"attempts": 0, **chosen})[1:-1]
    return f'{{{rest},"removeOnComplete":false,"removeOnFail":false,"group":{tag}}}'


def _undo_parts(undo: Compensation, group_id: str) -> tuple[str, str, str, str, bool]:
    """Spell out what all undos of one mapping share."""
    opts = RetryOptions(
        attempts=undo.opts.attempts or UNDO_ATTEMPTS, backoff=undo.opts.backoff or UNDO_BACKOFF
    )
    check_backoff(opts.attempts or 1, opts.backoff)
    chosen = opts.model_dump(exclude_none=True)
    text = to_json({**chosen, "removeOnComplete": False, "removeOnFail": False})
    start = f'{{"groupId":"{group_id}",'
    tail = f',"compensationData":{to_json(undo.data)}}}'
    return undo.name, text, start, tail, undo.when == "Started"
