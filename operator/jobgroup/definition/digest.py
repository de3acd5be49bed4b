"""The digest of a definition: the same from every client, for every way to write the definition.

A digest is `v1:` and the SHA-256 of the definition as canonical JSON (RFC 8785), in base64 without
padding: Redis stores texts of up to 64 bytes compactly, and hexadecimal digits would be longer. It
covers the jobs, the compensation, onEnd and a name that the user gave. It does not cover the group
id, the owner, a name that was derived from a resource, or how the plan is packed. Pure.

There is one departure from RFC 8785: an integer beyond 2^53 is written with all its digits.
"""

import json
import re
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from hashlib import sha256
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import Any

from jobgroup.definition.options import RetryOptions, undo_options
from jobgroup.definition.slices import Sliced, finish, slices
from jobgroup.definition.spec import Compensation, EndJob, Group, Job, own_undo_queues

VERSION = "v1:"

# What an omitted option means. Only options that this project applies are here: the default of
# another one is that of the worker's BullMQ, which may change.
_JOB_DEFAULTS: dict[str, Any] = {
    "delay": 0,
    "priority": 0,
    "lifo": False,
    "removeOnComplete": False,
    "removeOnFail": False,
}
_UNDO_DEFAULTS: dict[str, Any] = undo_options(RetryOptions()).model_dump()
NO_SIZES: Mapping[str, int] = MappingProxyType({})
# BullMQ itself applies the retention of these jobs, and the worker decides it if it is omitted.
_END_DEFAULTS = {name: _JOB_DEFAULTS[name] for name in ("delay", "priority", "lifo")}
_END_WHEN = EndJob.model_fields["when"].default
_WHEN = Compensation.model_fields["when"].default

_write_sorted = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode
# Where the encoder of Python and RFC 8785 may differ: a float with an exponent or without a
# fraction; a key with such a character, because Python sorts by code points and not by UTF-16 code
# units; a surrogate. A match inside a text only costs time.
_FLOAT = re.compile(r"[\[:,]-?[0-9]+(?:\.0[,\]}]|(?:\.[0-9]+)?e)")
_HIGH = re.compile("[\ud800-\U0010ffff]")
# ECMAScript writes an exponent for larger numbers, and for numbers with more zeros after the point.
_MAX_DIGITS = 21
_MAX_ZEROS = 5


def digest_group(group: Group) -> str:
    """Return the digest of a definition."""
    return finish(digest_in_slices(group))


def digest_in_slices(
    group: Group, job_sizes: Sequence[int] = (), undo_sizes: Mapping[str, int] = NO_SIZES
) -> Sliced[str]:
    """Return the digest of a definition; take breaks.

    The sizes are the bytes of the jobs and of the undos, if they are known.
    """
    in_order = sorted(group.compensation.items(), key=_utf16_order)
    undos = slices(in_order, [undo_sizes.get(name, 0) for name, _ in in_order])
    jobs = slices(group.jobs, job_sizes)
    if max(len(jobs), len(undos)) <= 1:
        text = canonical_json(_given(group, group.jobs, group.compensation))
    else:
        text = yield from _join_slices(group, jobs, undos)
    digest = b2a_base64(sha256(text).digest(), newline=False)
    return VERSION + digest.decode().rstrip("=")


def _given(
    group: Group, jobs: Sequence[Job], compensation: Mapping[str, Compensation]
) -> dict[str, Any]:
    """Return what the user gave, with these jobs and undos."""
    given: dict[str, Any] = {"jobs": [_job(job) for job in jobs]}
    if compensation:
        queues = own_undo_queues(group)
        given["compensation"] = {
            name: _undo(undo, queues.get(name)) for name, undo in compensation.items()
        }
    if group.explicit_name:
        given["name"] = group.name
    if group.onEnd:
        given["onEnd"] = _end_jobs(group)
    return given


def _join_slices(
    group: Group,
    slices_of_jobs: Sequence[Sequence[Job]],
    slices_of_undos: Sequence[Sequence[tuple[str, Compensation]]],
) -> Sliced[bytes]:
    """Return what a group is as canonical JSON; the keys are in the order that it requires."""
    undos, jobs, queues = [], [], own_undo_queues(group)
    for some in slices_of_undos:
        given = {name: _undo(undo, queues.get(name)) for name, undo in some}
        undos.append(canonical_json(given)[1:-1])
        yield
    for each in slices_of_jobs:
        jobs.append(canonical_json([_job(job) for job in each])[1:-1])
        yield
    compensation = b'"compensation":{%b},' % b",".join(undos) if undos else b""
    rest: dict[str, Any] = {"name": group.name} if group.explicit_name else {}
    if group.onEnd:
        rest["onEnd"] = _end_jobs(group)
    others = b"," + canonical_json(rest)[1:-1] if rest else b""
    return b'{%b"jobs":[%b]%b}' % (compensation, b",".join(jobs), others)


def canonical_json(value: Mapping[str, Any] | list[Any]) -> bytes:
    """Return an object or an array, which is known to be JSON, as canonical JSON."""
    text = _write_sorted(value)
    if _FLOAT.search(text) or (not text.isascii() and _HIGH.search(text)):
        return write_exactly(value)
    return text.encode()


def write_exactly(value: Any) -> bytes:
    """Return any JSON value as canonical JSON. Slower than the encoder of Python."""
    units = _write(value).encode("utf-16-le", "surrogatepass")
    # Two surrogates that are a pair become one character, and a lone one is escaped, as
    # ECMAScript does. RFC 8785 has no form for it, but the data of a job may contain it.
    return units.decode("utf-16-le", "surrogatepass").encode("utf-8", "backslashreplace")


def _write(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, dict):
        fields = sorted(value.items(), key=_utf16_order)
        return f"{{{','.join([f'{_write(key)}:{_write(each)}' for key, each in fields])}}}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_write, value))}]"
    return _number(value) if isinstance(value, float) else _write_sorted(value)


def _utf16_order(field: tuple[str, Any]) -> bytes:
    return field[0].encode("utf-16-be", "surrogatepass")


def _number(value: float) -> str:
    """Write a float as ECMAScript does. Its shortest digits are those of Python."""
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.<digits> times ten to the power of `point`.
    point = len(digits) - len(fraction) + int(exponent or 0)
    digits = digits.rstrip("0")
    if len(digits) <= point <= _MAX_DIGITS:
        return sign + digits.ljust(point, "0")
    if 0 < point <= _MAX_DIGITS:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -_MAX_ZEROS <= point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if digits[1:] else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"


def _job(job: Job) -> dict[str, Any]:
    given: dict[str, Any] = {"name": job.name, "queueName": job.queueName}
    _add_data(given, job.data)
    _add_options(given, job.opts, _JOB_DEFAULTS)
    return given


def _undo(undo: Compensation, queue: str | None) -> dict[str, Any]:
    """Return an undo; `queue` is its queue if that is not the default one."""
    given: dict[str, Any] = {"name": undo.name}
    if queue:
        given["queueName"] = queue
    _add_data(given, undo.data)
    _add_options(given, undo.opts, _UNDO_DEFAULTS)
    if undo.when != _WHEN:
        given["when"] = undo.when
    return given


def _end_jobs(group: Group) -> list[dict[str, Any]]:
    return [_end_job(each) for each in group.onEnd]


def _end_job(job: EndJob) -> dict[str, Any]:
    given: dict[str, Any] = {"name": job.name, "queueName": job.queueName}
    _add_data(given, job.data)
    _add_options(given, job.opts, _END_DEFAULTS)
    if job.when != _END_WHEN:
        given["when"] = job.when
    return given


def _add_data(given: dict[str, Any], data: Any) -> None:
    """Add data unless it equals its default, an empty object. Data is not changed."""
    if data or not isinstance(data, dict):
        given["data"] = data


def _add_options(given: dict[str, Any], opts: RetryOptions, defaults: dict[str, Any]) -> None:
    """Add the options that differ from their default, if there are any."""
    if not opts.model_fields_set:
        return
    options = {
        name: value
        for name, value in opts.model_dump(exclude_none=True).items()
        if not _is_default(value, defaults.get(name))
    }
    if options:
        given["opts"] = options


def _is_default(value: Any, default: Any) -> bool:
    # In Python 0 equals False, but removeOnComplete: 0 removes each job, and false none.
    return value == default and type(value) is type(default)
