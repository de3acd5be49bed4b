"""What a group may be: pydantic models of a definition, and the sentence that says what is wrong.

The names are BullMQ's and the manifest's own. Everything here is pure; nothing is written anywhere
when anything is refused.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError, field_validator

from jobgroup.errors import (
    EmptyGroupError,
    InvalidSpecError,
    JobInFlowError,
    JobInGroupError,
    UnknownCompensationError,
)
from jobgroup.options import NO_OPTIONS, JobOptions, Model, RetryOptions, undo_options
from jobgroup.sentences import sentence

MAX_JOBS = 2000

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


class Job(Model):
    """One member."""

    name: Name = Field(description="The job's name, as its worker sees it.")
    queueName: QueueName = Field(  # noqa: N815
        description="The BullMQ queue the job goes to: 1 to 63 letters, digits, dots, underscores"
        " or hyphens. _jobgroups is reserved."
    )
    data: Any = Field(
        default_factory=dict, description="What the worker is given: any JSON, {} if left out."
    )
    opts: JobOptions = Field(
        default=NO_OPTIONS,
        description="BullMQ's options; what is left out is BullMQ's own default.",
    )


class Compensation(Model):
    """How a completed member is undone."""

    name: Name = Field(description="The undo job's name, as its worker sees it.")
    data: Any = Field(
        default_factory=dict,
        description="What the undo finds under compensationData: any JSON, {} if left out.",
    )
    opts: RetryOptions = Field(
        default=RetryOptions(),
        description="How often the undo is tried: 3 attempts with an exponential backoff of 1000"
        " ms, each unless said otherwise.",
    )
    when: Literal["Completed", "Started"] = Field(
        default="Completed",
        description="Completed undoes a job that completed; Started also one that started and"
        " failed, or of which nobody knows how it ended.",
    )

    @field_validator("opts")
    @classmethod
    def _backoff_stays_below_an_hour_by_default(cls, opts: RetryOptions) -> RetryOptions:
        undo_options(opts)
        return opts


class Group(Model):
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
