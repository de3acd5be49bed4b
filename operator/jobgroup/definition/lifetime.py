"""How long a group without a resource may run, and how long it is kept after its end. Pure.

Neither is part of the definition: a group that is created again with others is the same group.
"""

from dataclasses import dataclass
from typing import Any

from jobgroup.errors import InvalidSpecError

# Ten years. To disable a limit, omit the field.
MAX_SECONDS = 10 * 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Seconds from the end of a group to its removal, and from its creation to its cancellation."""

    ttl: int | None = None
    deadline: int | None = None

    def fields(self) -> list[Any]:
        """Return the fields of the group's hash, each with its value."""
        found = []
        if self.ttl is not None:
            found += ["ttlSeconds", self.ttl]
        if self.deadline is not None:
            found += ["deadlineSeconds", self.deadline]
        return found


UNLIMITED = Lifetime()


def check_lifetime(ttl: Any, deadline: Any, names: tuple[str, str]) -> Lifetime:
    """Return the lifetime; raise InvalidSpecError with the name of the value that is wrong."""
    return Lifetime(_check(names[0], ttl, 0), _check(names[1], deadline, 1))


def _check(name: str, value: Any, least: int) -> int | None:
    if value is None:
        return None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not least <= value <= MAX_SECONDS:
        raise InvalidSpecError(
            f"{name}: Input should be a whole number of seconds from {least} to {MAX_SECONDS}"
        )
    return int(value)
