"""The spec of a JobGroup as a model, and a raw object -> settings and a validated group. Pure.

The CRD is generated from the models, and `kubectl explain` prints their descriptions. The operator
validates objects with them again, because CEL cannot express every rule.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from jobgroup.definition.lifetime import MAX_SECONDS
from jobgroup.definition.options import Model
from jobgroup.definition.requests import MAX_BY, MAX_REASON
from jobgroup.definition.slices import Pace, Sliced, finish
from jobgroup.definition.spec import (
    MAX_END_JOBS,
    MAX_JOBS,
    Compensation,
    EndJob,
    Group,
    Job,
    Name,
    parse_group_in_slices,
)
from jobgroup.definition.validation import validation_error
from jobgroup.errors import InvalidSpecError

# An object also contains its status and managed fields, and etcd stores at most 1.5 MB.
MAX_SPEC = 512 * 1024
# Each retry is a write to Redis, so a mistake must not cause an endless number of them.
MAX_RETRIES = 1000
# How many jobs or undos are encoded at a time to measure them.
FEW = 10
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class StandingAnswer(Model):
    """What a job ends with, as soon as it is pending, without a worker."""

    returnValue: Any = Field(  # noqa: N815
        default=None, description="The job completes with this value: any JSON. Defaults to null."
    )
    failed: Annotated[str, Field(min_length=1, max_length=MAX_REASON)] | None = Field(
        default=None,
        description="The job fails for good, for this reason. Not together with returnValue.",
    )
    by: Annotated[str, Field(min_length=1, max_length=MAX_BY)] = Field(
        description="Who answers, as people read it later."
    )


class StandingResolution(Model):
    """Why an undo that failed or waits is not run any more."""

    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON, pattern=r"\S")] = Field(
        description="What was done instead, or why the effect stays; in one line."
    )
    by: Annotated[str, Field(min_length=1, max_length=MAX_BY)] | None = Field(
        default=None,
        description="Who resolves it, as people read it later. Defaults to this JobGroup.",
    )


class Settings(Model):
    """The fields of a spec that only the operator uses."""

    deletionPolicy: Literal["Compensate", "Orphan"] = Field(  # noqa: N815
        default="Compensate",
        description="What happens when the JobGroup is deleted while its group runs. Compensate"
        " cancels the group and keeps the JobGroup until all undos have ended. Orphan deletes the"
        " JobGroup at once; the group continues in Redis.",
    )
    cancel: bool = Field(
        default=False,
        description="Set to true to cancel the group: pending jobs are dropped and completed jobs"
        " are undone. Cannot be set back to false.",
    )
    complete: Annotated[dict[str, StandingAnswer], Field(max_length=MAX_JOBS)] = Field(
        default_factory=dict,
        description="What completes a job, or lets it fail, without a worker, by job name. It is"
        " applied once the job waits or is delayed and the group is ACTIVE; status.jobs shows"
        " whether. The first answer that was applied holds. Not allowed on creation.",
    )
    retryUndos: Annotated[int, Field(ge=0, le=MAX_RETRIES)] | None = Field(  # noqa: N815
        default=None,
        description="How often the failed undos of this group are retried: while this is above"
        " status.compensation.retries, a group in FAILED_COMPENSATION compensates again. Not"
        " allowed on creation.",
    )
    resolved: Annotated[dict[str, StandingResolution], Field(max_length=MAX_JOBS)] = Field(
        default_factory=dict,
        description="Undos that no worker is to run any more, by job name: somebody has undone"
        " the effect, or it stays. Applied once the undo failed or waits; status.jobs shows whether"
        " it was. The first resolution that was applied holds. Not allowed on creation.",
    )
    suspend: bool = Field(
        default=False,
        description="If true when the JobGroup is created, its jobs are not added to their queues"
        " until it is set to false. Cannot be set to true after that.",
    )
    activeDeadlineSeconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] | None = Field(  # noqa: N815
        default=None,
        description="Seconds after status.startedAt. A group that is still ACTIVE then is"
        " cancelled. The undos have no deadline. No deadline if omitted.",
    )
    ttlSecondsAfterFinished: Annotated[int, Field(ge=0, le=MAX_SECONDS)] | None = Field(  # noqa: N815
        default=None,
        description="Seconds after status.finishedAt. The JobGroup is deleted then, together with"
        " its group and jobs in Redis. It is never deleted if omitted, or while its state is"
        " FAILED_COMPENSATION.",
    )


class JobGroupSpec(Settings):
    """The desired group: jobs that all succeed, or whose effects are undone."""

    name: Name | None = Field(
        default=None,
        description="The name of the group, as workers and events show it. Defaults to"
        " metadata.name. Immutable.",
    )
    jobs: Annotated[tuple[Job, ...], Field(max_length=MAX_JOBS)] = Field(
        description="The jobs: 1 to 2000, each with a unique name. They are independent of each"
        " other and run in any order. Immutable.",
    )
    compensation: Annotated[dict[str, Compensation], Field(max_length=MAX_JOBS)] = Field(
        default_factory=dict,
        description="The undo of each job, by job name. A job without an entry is not undone."
        " Immutable.",
    )

    onEnd: Annotated[tuple[EndJob, ...], Field(max_length=MAX_END_JOBS)] | None = Field(  # noqa: N815
        default=None,
        description="Jobs that are added to queues when the group ends: exactly one for each entry"
        " whose when is the state, each time the group enters such a state. Immutable.",
    )


def parse_resource(body: Mapping[str, Any]) -> tuple[Settings, Group]:
    """Return the settings and the group of an object; raise InvalidSpecError if it is invalid."""
    return finish(_parse(body))


def parse_definition(body: Mapping[str, Any]) -> Group:
    """Return the group of an object; raise InvalidSpecError if any part of it is invalid."""
    return parse_resource(body)[1]


def parse_definition_in_slices(body: Mapping[str, Any]) -> Sliced[Group]:
    """Return what parse_definition returns; take breaks."""
    _, group = yield from _parse(body)
    return group


def _parse(body: Mapping[str, Any]) -> Sliced[tuple[Settings, Group]]:
    spec = body.get("spec")
    if not isinstance(spec, Mapping):
        raise InvalidSpecError("spec: Input should be a mapping", is_final=False)
    yield from check_size(spec)
    yield
    definition = JobGroupSpec.model_fields.keys() - Settings.model_fields.keys()
    try:
        settings = Settings.model_validate(
            {field: value for field, value in spec.items() if field not in definition}
        )
    except ValidationError as error:
        # A known setting can be changed, and a newer release may know an unknown one.
        raise InvalidSpecError(f"spec.{validation_error(error)}", is_final=False) from None
    group = yield from parse_group_in_slices(
        spec.get("name"),
        spec.get("jobs") or (),
        spec.get("compensation"),
        default_name=body["metadata"]["name"],
        on_end=spec.get("onEnd"),
    )
    _check_unique(group)
    return settings, group


def check_size(spec: Mapping[str, Any]) -> Sliced[None]:
    """Raise if a spec leaves no room for its status; CEL cannot measure fields without a schema."""
    try:
        size = yield from _size(spec)
    except RecursionError:
        raise InvalidSpecError("spec: nested too deeply") from None
    if size > MAX_SPEC:
        # Rounded up, so the message never shows the size of a valid spec.
        raise InvalidSpecError(
            f"spec has {-(-size // 1024)} KB; the limit is {MAX_SPEC // 1024} KB"
        )


def _size(spec: Mapping[str, Any]) -> Sliced[int]:
    """Return the bytes of a spec as compact JSON."""
    total, rest, pace = 0, dict(spec), Pace()
    for field in ("jobs", "compensation"):
        given = spec.get(field)
        if not given or not isinstance(given, (list, dict)):
            continue
        rest[field] = type(given)()
        total -= len(",")
        for part in _parts(given):
            size = _bytes(part)
            total += size - len("[]") + len(",")
            if pace.ends_with(size):
                yield
    return total + _bytes(rest)


def _parts(given: list[Any] | dict[str, Any]) -> Iterator[list[Any] | dict[str, Any]]:
    """Return the jobs or the undos, a few at a time: a call for each alone would take longer."""
    rest = iter(given.items() if isinstance(given, dict) else given)
    while part := type(given)(islice(rest, FEW)):
        yield part


def _bytes(value: Any) -> int:
    return len(_encode(value).encode(errors="surrogatepass"))


def _check_unique(group: Group) -> None:
    """Raise if two jobs have the same name, as the API server does: undos refer to jobs by name."""
    seen = set()
    for job in group.jobs:
        if job.name in seen:
            raise InvalidSpecError(f'Job "{job.name}" appears twice in one group')
        seen.add(job.name)
