"""What a group may be: pydantic models of a definition, and the sentence that says what is wrong.

The names are BullMQ's and the manifest's own. Everything here is pure; nothing is written anywhere
when anything is refused.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from jobgroup.errors import (
    EmptyGroupError,
    InvalidSpecError,
    JobInFlowError,
    JobInGroupError,
    UnknownCompensationError,
)
from jobgroup.sentences import sentence

MAX_JOBS = 2000
MAX_PRIORITY = 2_097_151
MAX_DELAY = 10 * 365 * 24 * 3600 * 1000
# Stock workers double a delay without end; an hour is where we draw the line.
MAX_BACKOFF = 3_600_000
UNDO_ATTEMPTS = 3

# A group's id becomes part of keys that BullMQ also uses for its own purposes.
# fmt: off
RESERVED_IDS = frozenset((
    "active", "changed", "completed", "delayed", "events", "failed", "id", "limiter", "marker",
    "meta", "paused", "pc", "prioritized", "repeat", "saga", "stalled", "stalled-check", "tomb",
    "wait", "waiting-children",
))
# fmt: on
_GROUP_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")

Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
QueueName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,63}$")]
# What JavaScript and Lua can count.
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Milliseconds = Annotated[int, Field(ge=0, le=MAX_DELAY)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Backoff(_Model):
    """How long to wait before another attempt."""

    type: Literal["fixed", "exponential"]
    delay: Annotated[int, Field(gt=0, le=MAX_DELAY)]


class Retention(_Model):
    """How many finished jobs a queue keeps, and for how many seconds."""

    age: Count | None = None
    count: Count | None = None


def check_backoff(attempts: int, backoff: "int | Backoff | None") -> None:
    """Refuse an exponential backoff whose last wait would be longer than an hour."""
    if not isinstance(backoff, Backoff) or backoff.type == "fixed":
        return
    fitting = 1
    while backoff.delay * 2 ** (fitting - 1) <= MAX_BACKOFF:
        fitting += 1
    if attempts > fitting:
        fit = "1 attempt fits" if fitting == 1 else f"{fitting} attempts fit"
        raise ValueError(
            f"exponential backoff from {backoff.delay} ms would wait longer than"
            f" {MAX_BACKOFF} ms; at most {fit}"
        )


Keep = bool | Count | Retention


class RetryOptions(_Model):
    """What an undo may be told: how often to try, and how long to wait between."""

    attempts: Annotated[int, Field(ge=1, le=1000)] | None = None
    backoff: Annotated[int, Field(gt=0, le=MAX_DELAY)] | Backoff | None = None

    @model_validator(mode="after")
    def _backoff_stays_below_an_hour(self) -> Self:
        check_backoff(self.attempts or 1, self.backoff)
        return self


class JobOptions(RetryOptions):
    """What a member may be told; omitted means BullMQ's own default."""

    delay: Milliseconds | None = None
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] | None = None
    lifo: bool | None = None
    removeOnComplete: Keep | None = None  # noqa: N815
    removeOnFail: Keep | None = None  # noqa: N815
    keepLogs: Count | None = None  # noqa: N815
    stackTraceLimit: Count | None = None  # noqa: N815


NO_OPTIONS = JobOptions()


class Job(_Model):
    """One member."""

    name: Name
    queueName: QueueName  # noqa: N815
    data: Any = Field(default_factory=dict)
    opts: JobOptions = NO_OPTIONS


UNDO_BACKOFF = Backoff(type="exponential", delay=1000)


def undo_options(given: RetryOptions) -> RetryOptions:
    """Return an undo's options: our own defaults, each unless another was given."""
    attempts, backoff = given.attempts or UNDO_ATTEMPTS, given.backoff or UNDO_BACKOFF
    check_backoff(attempts, backoff)
    return RetryOptions(attempts=attempts, backoff=backoff)


class Compensation(_Model):
    """How a completed member is undone."""

    name: Name
    data: Any = Field(default_factory=dict)
    opts: RetryOptions = RetryOptions()
    when: Literal["Completed", "Started"] = "Completed"

    @field_validator("opts")
    @classmethod
    def _backoff_stays_below_an_hour_by_default(cls, opts: RetryOptions) -> RetryOptions:
        undo_options(opts)
        return opts


class Group(_Model):
    """A whole definition."""

    name: Name
    jobs: tuple[Job, ...]
    compensation: dict[str, Compensation] = Field(default_factory=dict)


def parse_group(
    name: str,
    jobs: Sequence[Mapping[str, Any]],
    compensation: Mapping[str, Any] | None = None,
) -> Group:
    """Return the definition, checked, or raise the one thing that is wrong with it."""
    if not isinstance(jobs, Sequence) or isinstance(jobs, str):
        raise InvalidSpecError("jobs: Input should be a list")
    if not jobs:
        raise EmptyGroupError
    if len(jobs) > MAX_JOBS:
        raise InvalidSpecError(
            f"jobs: {len(jobs)} jobs are more than the {MAX_JOBS} a group may have"
        )
    if compensation is not None and not isinstance(compensation, Mapping):
        raise InvalidSpecError("compensation: Input should be a mapping")
    _check_membership(jobs)
    if compensation:
        _check_names(jobs, compensation)
    try:
        group = Group.model_validate(
            {"name": name, "jobs": tuple(jobs), "compensation": dict(compensation or {})}
        )
    except ValidationError as error:
        raise InvalidSpecError(sentence(error)) from None
    for n, job_spec in enumerate(group.jobs):
        if job_spec.queueName == "_jobgroups":
            raise InvalidSpecError(f'jobs[{n}].queueName: "_jobgroups" is reserved')
    return group


def _check_names(jobs: Sequence[Mapping[str, Any]], compensation: Mapping[str, Any]) -> None:
    """Refuse an undo of a job that is not there."""
    names = [job.get("name") for job in jobs if isinstance(job, Mapping)]
    known = {name for name in names if isinstance(name, str)}
    for key in compensation:
        if key not in known:
            raise UnknownCompensationError(key)


def _check_membership(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a job that is already somebody else's."""
    for job in jobs:
        opts = job.get("opts") if isinstance(job, Mapping) else None
        if opts and isinstance(opts, Mapping):
            if opts.get("parent") is not None:
                raise JobInFlowError
            if opts.get("group") is not None:
                raise JobInGroupError(str(job.get("name")))


def check_group_id(group_id: str) -> str:
    """Return an id that is fit to become part of keys, or say why it is not."""
    if not isinstance(group_id, str) or not _GROUP_ID.fullmatch(group_id):
        raise InvalidSpecError(
            f"Group id {group_id!r} must be 1 to 128 letters, digits, dots, underscores or hyphens"
        )
    if group_id.endswith("-undo") or group_id in RESERVED_IDS:
        raise InvalidSpecError(f"Group id {group_id!r} is reserved")
    return group_id
