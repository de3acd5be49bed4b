"""The definition of a group as pydantic models, and its validation. Pure.

The fields have the names of BullMQ and of the manifest.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from jobgroup.definition.options import NO_OPTIONS, JobOptions, Model, RetryOptions, undo_options
from jobgroup.definition.slices import SLICE, Sliced, finish, slices
from jobgroup.definition.validation import may_be_newer, validation_error
from jobgroup.errors import (
    EmptyGroupError,
    InvalidSpecError,
    JobInFlowError,
    JobInGroupError,
    UnknownCompensationError,
)
from jobgroup.model import names

MAX_JOBS = 2000
MAX_END_JOBS = 10

# A group's id becomes part of keys below `_jobgroups:`, where BullMQ and this project have others,
# and of `{queue}:groups:{id}`, which must not look like a key of a job with the id `groups`: BullMQ
# 6 deletes such keys in removeOrphanedJobs. A test compares the words with the source of BullMQ.
# fmt: off
RESERVED_IDS = frozenset((
    "active", "changed", "completed", "de", "delayed", "dependencies", "events", "failed", "heard",
    "id", "limiter", "lock", "logs", "marker", "meta", "paused", "pc", "prioritized", "processed",
    "repeat", "saga", "stalled", "stalled-check", "tomb", "unsuccessful", "wait",
    "waiting-children",
))
# fmt: on
# With `-<n>`, the id of a member, it would be the id of a job of onEnd of another group.
_LIKE_END_JOB = re.compile(rf"{names.END_JOB}[0-9]+$")
_GROUP_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")

Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
MAX_QUEUE_NAME = 63
QUEUE_NAME = f"[A-Za-z0-9._-]{{1,{MAX_QUEUE_NAME}}}"
QueueName = Annotated[str, StringConstraints(pattern=f"^{QUEUE_NAME}$")]
# The name of a queue, or that of the default queue of undos.
UNDO_QUEUE = f"^{QUEUE_NAME}({names.UNDO_QUEUE_SUFFIX})?$"
RESERVED_QUEUES = frozenset((names.LEDGER_QUEUE, names.undo_queue(names.LEDGER_QUEUE)))
MAX_UNDO_QUEUE = MAX_QUEUE_NAME + len(names.UNDO_QUEUE_SUFFIX)


class Job(Model):
    """One job of a group."""

    name: Name = Field(description="The name of the job, as its worker sees it.")
    queueName: QueueName = Field(  # noqa: N815
        description="The BullMQ queue of the job: 1 to 63 letters, digits, dots, underscores or"
        " hyphens. _jobgroups is reserved."
    )
    data: Any = Field(
        default_factory=dict, description="The data of the job: any JSON. Defaults to {}."
    )
    opts: JobOptions = Field(
        default=NO_OPTIONS,
        description="BullMQ options; an omitted one has the default of BullMQ.",
    )


class Compensation(Model):
    """The undo of one job."""

    name: Name = Field(description="The name of the undo, as its worker sees it.")
    queueName: Annotated[str, StringConstraints(pattern=UNDO_QUEUE)] | None = Field(  # noqa: N815
        default=None,
        description="The queue of the undo. Defaults to the queue of its job and `:compensation`,"
        " a name that BullMQ for Node refuses. _jobgroups is reserved.",
    )
    data: Any = Field(
        default_factory=dict,
        description="The compensationData in the data of the undo: any JSON. Defaults to {}.",
    )
    opts: RetryOptions = Field(
        default=RetryOptions(),
        description="Attempts and backoff of the undo. Defaults to 3 attempts with an exponential"
        " backoff of 1000 ms.",
    )
    when: Literal["Completed", "Started"] = Field(
        default="Completed",
        description="Completed undoes the job if it completed. Started undoes it also if it started"
        " and then failed, or if its result is unknown.",
    )

    @field_validator("opts")
    @classmethod
    def _backoff_stays_below_an_hour_by_default(cls, opts: RetryOptions) -> RetryOptions:
        undo_options(opts)
        return opts


class EndJob(Model):
    """A job that is added when the group ends."""

    when: Literal["Always", "Completed", "Failed", "FailedCompensation"] = Field(
        default="Always",
        description="The state in which the group ends: COMPLETED, FAILED or FAILED_COMPENSATION."
        " Always means each of them.",
    )
    queueName: QueueName = Field(  # noqa: N815
        description="The BullMQ queue of the job. _jobgroups is reserved."
    )
    name: Name = Field(description="The name of the job, as its worker sees it.")
    data: Any = Field(
        default_factory=dict,
        description="The field data in the data of the job: any JSON, at most 64 KB. Defaults to"
        " {}.",
    )
    opts: JobOptions = Field(
        default=NO_OPTIONS,
        description="BullMQ options; an omitted one has the default of BullMQ.",
    )


class Group(Model):
    """The definition of a group."""

    name: Name
    jobs: tuple[Job, ...]
    compensation: dict[str, Compensation] = Field(default_factory=dict)
    onEnd: tuple[EndJob, ...] = ()  # noqa: N815
    # Whether the user gave the name. If not, it is that of the resource.
    explicit_name: bool = True


_STRICT = ConfigDict(strict=True)
_JOBS = TypeAdapter(tuple[Job, ...], config=_STRICT)
_UNDOS = TypeAdapter(dict[str, Compensation], config=_STRICT)


def parse_group(
    name: str | None,
    jobs: Sequence[Mapping[str, Any]],
    compensation: Mapping[str, Any] | None = None,
    default_name: str | None = None,
    on_end: Sequence[Mapping[str, Any]] | None = None,
) -> Group:
    """Return the validated definition; raise InvalidSpecError with the first error.

    The default name, which is that of a resource, is used if the user gave none.
    """
    return finish(parse_group_in_slices(name, jobs, compensation, default_name, on_end))


def parse_group_in_slices(
    name: str | None,
    jobs: Sequence[Mapping[str, Any]],
    compensation: Mapping[str, Any] | None,
    default_name: str | None,
    on_end: Sequence[Mapping[str, Any]] | None = None,
) -> Sliced[Group]:
    """Return what parse_group returns; take breaks."""
    _check_kinds(jobs, compensation, on_end)
    _check_membership(jobs)
    if compensation:
        _check_names(jobs, compensation)
    if len(jobs) > SLICE:
        jobs, compensation = yield from _validate_parts(jobs, compensation or {})
    explicit = bool(name) or default_name is None
    try:
        group = Group.model_validate(
            {
                "name": name if explicit else default_name,
                "jobs": tuple(jobs),
                "compensation": dict(compensation or {}),
                "onEnd": tuple(on_end or ()),
                "explicit_name": explicit,
            }
        )
    except ValidationError as error:
        is_final = not may_be_newer(error)
        raise InvalidSpecError(validation_error(error), is_final) from None
    _check_queues(group)
    return group


def _check_kinds(jobs: Any, compensation: Any, on_end: Any) -> None:
    """Raise if a part of a definition is no list or no mapping, or has too many entries."""
    for field, given in (("jobs", jobs), ("onEnd", () if on_end is None else on_end)):
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise InvalidSpecError(f"{field}: Input should be a list")
    if not jobs:
        raise EmptyGroupError
    if len(jobs) > MAX_JOBS:
        raise InvalidSpecError(f"jobs: {len(jobs)} jobs exceed the limit of {MAX_JOBS} in a group")
    if compensation is not None and not isinstance(compensation, Mapping):
        raise InvalidSpecError("compensation: Input should be a mapping")
    if len(on_end or ()) > MAX_END_JOBS:
        raise InvalidSpecError(f"onEnd: at most {MAX_END_JOBS} entries")


def _check_queues(group: Group) -> None:
    """Raise if a job is for a queue that is reserved."""
    places = [(f"jobs[{n}]", job.queueName) for n, job in enumerate(group.jobs)]
    places += [(f"onEnd[{n}]", job.queueName) for n, job in enumerate(group.onEnd)]
    undos = [(f"compensation.{key}", undo.queueName) for key, undo in group.compensation.items()]
    for where, queue in (*places, *undos):
        if queue in RESERVED_QUEUES:
            raise InvalidSpecError(f'{where}.queueName: "{queue}" is reserved')


def own_undo_queues(group: Group) -> dict[str, str]:
    """Return the queues of undos that are not the default queue, by the names of the jobs."""
    given = {name: undo.queueName for name, undo in group.compensation.items() if undo.queueName}
    if not given:
        return {}
    defaults = [(job.name, names.undo_queue(job.queueName)) for job in group.jobs]
    others = {name for name, default in defaults if given.get(name) != default}
    return {name: queue for name, queue in given.items() if name in others}


def _validate_parts(
    jobs: Sequence[Any], compensation: Mapping[str, Any]
) -> Sliced[tuple[list[Any], dict[str, Any]]]:
    """Return the jobs and undos as models, except for those in an invalid slice."""
    members: list[Any] = []
    for each in slices(tuple(jobs)):
        members += _validated(_JOBS, each)
        yield
    undos: dict[str, Any] = {}
    for some in slices(tuple(compensation.items())):
        undos |= _validated(_UNDOS, dict(some))
        yield
    return members, undos


def _validated(adapter: TypeAdapter[Any], given: Any) -> Any:
    """Return a slice as models, which no model validates again.

    An invalid slice is returned unchanged: the model of the group reports the place of its errors.
    """
    try:
        return adapter.validate_python(given)
    except ValidationError:
        return given


def _check_names(jobs: Sequence[Mapping[str, Any]], compensation: Mapping[str, Any]) -> None:
    """Raise if a compensation names a job that is not in the group."""
    names = [job.get("name") for job in jobs if isinstance(job, Mapping)]
    known = {name for name in names if isinstance(name, str)}
    for key in compensation:
        if key not in known:
            raise UnknownCompensationError(key)


def _check_membership(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Raise if a job already belongs to a flow or to a group."""
    for job in jobs:
        opts = job.get("opts") if isinstance(job, Mapping) else None
        if opts and isinstance(opts, Mapping):
            if opts.get("parent") is not None:
                raise JobInFlowError
            if opts.get("group") is not None:
                raise JobInGroupError(str(job.get("name")))


def generate_group_id() -> str:
    """Return a new group id, with as many random bits as a UUID has."""
    return names.generated_id(secrets.randbits(128))


def is_group_id(text: str) -> bool:
    """Return whether a text may be the id of a group, as far as its characters say."""
    return _GROUP_ID.fullmatch(text) is not None


def check_group_id(group_id: str) -> str:
    """Return the id; raise InvalidSpecError if it cannot become part of a key."""
    if not isinstance(group_id, str) or not _GROUP_ID.fullmatch(group_id):
        raise InvalidSpecError(
            f"Group id {group_id!r} must be 1 to 128 letters, digits, dots, underscores or hyphens"
        )
    is_taken = group_id.endswith(names.UNDO_SUFFIX) or _LIKE_END_JOB.search(group_id)
    if is_taken or group_id in RESERVED_IDS:
        raise InvalidSpecError(f"Group id {group_id!r} is reserved")
    return group_id
