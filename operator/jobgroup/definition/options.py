"""BullMQ's options that a job may be told, and those of an undo, as pydantic models.

The names are BullMQ's own. spec.py makes definitions of them; everything here is pure.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_PRIORITY = 2_097_151
MAX_DELAY = 10 * 365 * 24 * 3600 * 1000
# Stock workers double a delay without end; an hour is where we draw the line.
MAX_BACKOFF = 3_600_000
UNDO_ATTEMPTS = 3

# What JavaScript and Lua can count.
MAX_COUNT = 2**53 - 1

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Milliseconds = Annotated[int, Field(ge=0, le=MAX_DELAY)]


class Model(BaseModel):
    """What all models of a definition have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Backoff(Model):
    """How long to wait before another attempt."""

    type: Literal["fixed", "exponential"] = Field(
        description="fixed waits the same time each time, exponential twice as long each time."
    )
    delay: Annotated[int, Field(gt=0, le=MAX_DELAY)] = Field(
        description="Milliseconds of the first wait."
    )


class Retention(Model):
    """How many finished jobs a queue keeps, and for how many seconds."""

    age: Count | None = Field(
        default=None, description="Seconds a finished job is kept; any time if left out."
    )
    count: Count | None = Field(
        default=None, description="Finished jobs that are kept; any number if left out."
    )


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


class RetryOptions(Model):
    """What an undo may be told: how often to try, and how long to wait between."""

    attempts: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="How often the job is tried before it has failed for good."
    )
    backoff: Annotated[int, Field(gt=0, le=MAX_DELAY)] | Backoff | None = Field(
        default=None,
        description="The wait between two attempts: {type, delay}, or just the milliseconds of a"
        " fixed one. An exponential one may not grow beyond an hour.",
    )

    @model_validator(mode="after")
    def _backoff_stays_below_an_hour(self) -> Self:
        check_backoff(self.attempts or 1, self.backoff)
        return self


class JobOptions(RetryOptions):
    """What a member may be told; omitted means BullMQ's own default."""

    delay: Milliseconds | None = Field(
        default=None, description="Milliseconds before a worker may take the job."
    )
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] | None = Field(
        default=None,
        description="A lower number goes first; a job without one, or with 0, before all.",
    )
    lifo: bool | None = Field(
        default=None, description="Whether the job goes to the head of its queue."
    )
    removeOnComplete: Keep | None = Field(  # noqa: N815
        default=None,
        description="What becomes of the job if it completed, once the group has ended: true"
        " removes it, a number or {age, count} says what its queue keeps.",
    )
    removeOnFail: Keep | None = Field(  # noqa: N815
        default=None, description="The same as removeOnComplete, for a job that failed."
    )
    keepLogs: Count | None = Field(  # noqa: N815
        default=None, description="Log lines that are kept of the job."
    )
    stackTraceLimit: Count | None = Field(  # noqa: N815
        default=None, description="Stack traces that are kept of the job, one an attempt."
    )


NO_OPTIONS = JobOptions()
UNDO_BACKOFF = Backoff(type="exponential", delay=1000)


def undo_options(given: RetryOptions) -> RetryOptions:
    """Return an undo's options: our own defaults, each unless another was given."""
    attempts, backoff = given.attempts or UNDO_ATTEMPTS, given.backoff or UNDO_BACKOFF
    check_backoff(attempts, backoff)
    return RetryOptions(attempts=attempts, backoff=backoff)
