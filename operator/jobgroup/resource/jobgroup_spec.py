"""The JobGroup resource: its spec as a model, and a raw object -> settings and a checked group.

crd.py makes the CRD of the models, so each description is what `kubectl explain` says. The operator
parses objects with them, for CEL cannot say everything. Everything here is pure.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from jobgroup.errors import InvalidSpecError
from jobgroup.options import Model
from jobgroup.sentences import sentence
from jobgroup.spec import MAX_JOBS, Compensation, Group, Job, Name, parse_group

API_GROUP = "jobgroups.dev"
VERSION = "v1alpha1"
API_VERSION = f"{API_GROUP}/{VERSION}"
KIND = "JobGroup"
PLURAL = "jobgroups"

# Ten years: what is longer was meant as never, and never is said by leaving it out.
MAX_SECONDS = 10 * 365 * 24 * 3600
# Beside the spec an object holds its status and who owns which field, and etcd takes 1.5 MB.
MAX_SPEC = 512 * 1024


class Settings(Model):
    """What a resource asks of the operator beside its jobs."""

    deletionPolicy: Literal["Compensate", "Orphan"] = Field(  # noqa: N815
        default="Compensate",
        description="What deleting the resource of a running group does. Compensate cancels the"
        " group and keeps the resource until all is undone; Orphan lets both go their own way.",
    )
    cancel: bool = Field(
        default=False,
        description="Set to true to give the group up: what is pending is dropped, what completed"
        " is undone. It cannot be taken back.",
    )
    suspend: bool = Field(
        default=False,
        description="Set to true when making the resource to hold its jobs back, and to false to"
        " let them go. Jobs that were let go cannot be held any more.",
    )
    activeDeadlineSeconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] | None = Field(  # noqa: N815
        default=None,
        description="Seconds after status.startedAt when a group that is still active is cancelled."
        " Undoing takes as long as it takes. There is no deadline if left out.",
    )
    ttlSecondsAfterFinished: Annotated[int, Field(ge=0, le=MAX_SECONDS)] | None = Field(  # noqa: N815
        default=None,
        description="Seconds after status.finishedAt when the resource is deleted, with all that is"
        " in Redis. It stays if left out.",
    )


class JobGroupSpec(Settings):
    """What is wanted: jobs that must all succeed, or have their effects undone."""

    name: Name | None = Field(
        default=None,
        description="The group's name, as workers and events have it; metadata.name if left out."
        " It cannot be changed.",
    )
    jobs: Annotated[tuple[Job, ...], Field(max_length=MAX_JOBS)] = Field(
        description="The jobs: 1 to 2000, each with a name of its own. They are independent of each"
        " other and run in any order. They cannot be changed.",
    )
    compensation: Annotated[dict[str, Compensation], Field(max_length=MAX_JOBS)] = Field(
        default_factory=dict,
        description="How jobs are undone, by job name. The undo goes to the queue"
        " <queueName>:compensation. A job without one stays as it is. It cannot be changed.",
    )


def parse_resource(body: Mapping[str, Any]) -> tuple[Settings, Group]:
    """Return what an object asks for, or raise the one thing that is wrong with it."""
    spec = body.get("spec")
    if not isinstance(spec, Mapping):
        raise InvalidSpecError("spec: Input should be a mapping")
    check_size(spec)
    definition = Group.model_fields.keys()
    try:
        settings = Settings.model_validate(
            {field: value for field, value in spec.items() if field not in definition}
        )
    except ValidationError as error:
        raise InvalidSpecError(f"spec.{sentence(error)}") from None
    name = spec.get("name") or body["metadata"]["name"]
    group = parse_group(name, spec.get("jobs") or (), spec.get("compensation"))
    _check_unique(group)
    return settings, group


def parse_definition(body: Mapping[str, Any]) -> Group:
    """Return an object's group alone, all of the object checked."""
    return parse_resource(body)[1]


def check_size(spec: Mapping[str, Any]) -> None:
    """Refuse a spec that leaves no room for its status; CEL cannot count what is opaque to it."""
    try:
        text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise InvalidSpecError("spec: it is nested too deeply") from None
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_SPEC:
        # Rounded up, so that what is refused never reads as what is allowed.
        raise InvalidSpecError(
            f"spec has {-(-size // 1024)} KB, and at most {MAX_SPEC // 1024} KB fit into a resource"
        )


def _check_unique(group: Group) -> None:
    """Refuse a second job of a name, as the API server does: the undos are found by it."""
    seen = set()
    for job in group.jobs:
        if job.name in seen:
            raise InvalidSpecError(f'Job "{job.name}" stands twice in one group')
        seen.add(job.name)
