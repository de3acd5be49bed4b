"""An answer to a job: what completes it, or lets it fail for good, without a worker. Pure."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from jobgroup.definition.digest import canonical_json
from jobgroup.definition.plan import to_json
from jobgroup.definition.requests import check_by, check_reason
from jobgroup.errors import InvalidSpecError

MAX_VALUE = 1_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job ends with: a return value as JSON text, or the reason of its failure.

    Equal values have equal digests, in whatever order the keys of an object are given.
    """

    outcome: Literal["completed", "failed"]
    text: str
    digest: str
    by: str


def completion(value: Any, by: str) -> Answer:
    """Return the answer that completes a job; raise InvalidSpecError if it is not JSON."""
    try:
        text = to_json(value)
    except InvalidSpecError as error:
        raise InvalidSpecError(str(error).replace("data", "value", 1)) from None
    size = len(text.encode())
    if size > MAX_VALUE:
        raise InvalidSpecError(f"value: {size} bytes exceed the limit of {MAX_VALUE}")
    return Answer("completed", text, _digest("completed", value), check_by(by))


def failure(reason: str, by: str) -> Answer:
    """Return the answer with which a job fails; raise InvalidSpecError if it has no reason."""
    return Answer("failed", check_reason(reason), _digest("failed", reason), check_by(by))


def _digest(outcome: str, said: Any) -> str:
    return sha256(canonical_json([outcome, said])).hexdigest()
