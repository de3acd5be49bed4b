"""The BullMQ options of a job and of an undo, as pydantic models with BullMQ's names. Pure."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_PRIORITY = 2_097_151
MAX_DELAY = 10 * 365 * 24 * 3600 * 1000
# Stock workers double a delay without limit; longer waits are rejected.
MAX_BACKOFF = 3_600_000
UNDO_ATTEMPTS = 3

# The largest integer that JavaScript and Lua represent exactly.
MAX_COUNT = 2**53 - 1

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Milliseconds = Annotated[int, Field(ge=0, le=MAX_DELAY)]


class Model(BaseModel):
    """The base of all models of a definition."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Backoff(Model):
    """How long to wait before another attempt."""

    type: Literal["fixed", "exponential"] = Field(
        description="With fixed, all waits are equal. With exponential, each is twice the last one."
    )
    delay: Annotated[int, Field(gt=0, le=MAX_DELAY)] = Field(
        description="The first wait in milliseconds."
    )


class Retention(Model):
    """How many finished jobs a queue keeps, and for how many seconds."""

    age: Count | None = Field(
        default=None, description="Seconds for which a finished job is kept; no limit if omitted."
    )
    count: Count | None = Field(
        default=None, description="The number of finished jobs that are kept; no limit if omitted."
    )


def check_backoff(attempts: int, backoff: "int | Backoff | None") -> None:
    """Raise ValueError if the last wait of an exponential backoff is longer than MAX_BACKOFF."""
    if not isinstance(backoff, Backoff) or backoff.type == "fixed":
        return
    fitting = 1
    while backoff.delay * 2 ** (fitting - 1) <= MAX_BACKOFF:
        fitting += 1
    if attempts > fitting:
        raise ValueError(
            f"exponential backoff from {backoff.delay} ms would wait longer than"
            f" {MAX_BACKOFF} ms; set attempts to at most {fitting}"
        )


Keep = bool | Count | Retention


class RetryOptions(Model):
    """The options of an undo: the number of attempts and the wait between them."""

    attempts: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="The number of attempts before the job fails for good."
    )
    backoff: Annotated[int, Field(gt=0, le=MAX_DELAY)] | Backoff | None = Field(
        default=None,
        description="The wait between two attempts: {type, delay}, or the milliseconds of a fixed"
        " wait. An exponential wait must not exceed an hour.",
    )

    @model_validator(mode="after")
    def _backoff_stays_below_an_hour(self) -> Self:
        check_backoff(self.attempts or 1, self.backoff)
        return self


class JobOptions(RetryOptions):
    """The options of a job; an omitted one has the default of BullMQ."""

    delay: Milliseconds | None = Field(
        default=None, description="Milliseconds to wait before a worker may start the job."
    )
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] | None = Field(
        default=None,
        description="A lower number runs first; 0, the default, runs before all others.",
    )
    lifo: bool | None = Field(
        default=None, description="Whether the job is added to the head of its queue."
    )
    removeOnComplete: Keep | None = Field(  # noqa: N815
        default=None,
        description="What happens to a completed job, if it is one of the group's after the group"
        " has ended: true removes it; a number or {age, count} limits the completed jobs that its"
        " queue keeps.",
    )
    removeOnFail: Keep | None = Field(  # noqa: N815
        default=None, description="The same as removeOnComplete, for a failed job."
    )
    keepLogs: Count | None = Field(  # noqa: N815
        default=None, description="The number of log lines of the job that are kept."
    )
    stackTraceLimit: Count | None = Field(  # noqa: N815
        default=None,
        description="The number of stack traces of the job that are kept; each attempt adds one.",
    )


NO_OPTIONS = JobOptions()
UNDO_BACKOFF = Backoff(type="exponential", delay=1000)


def undo_options(given: RetryOptions) -> RetryOptions:
    """Return the options of an undo, with our defaults for those that were omitted."""
    attempts, backoff = given.attempts or UNDO_ATTEMPTS, given.backoff or UNDO_BACKOFF
    check_backoff(attempts, backoff)
    return RetryOptions(attempts=attempts, backoff=backoff)
