"""A ValidationError of pydantic -> one error message with the field and the error. Pure."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

# The error types of pydantic for a value of the wrong type -> the expected type.
_KINDS = {
    "bool_type": "true or false",
    "int_type": "an integer",
    "model_type": "a mapping",
    "string_type": "a string",
}
# Messages that replace those of pydantic.
_MESSAGES = {
    "extra_forbidden": "unknown field",
    "string_pattern_mismatch": (
        "Input should be 1 to 63 letters, digits, dots, underscores or hyphens"
    ),
    "string_unicode": "Input should be valid Unicode without lone surrogates",
}
# The error types of pydantic for a field or a choice that a newer release may know.
_NEWER = {"extra_forbidden", "literal_error"}
# Fields of several types, and the names of the types in a location of pydantic.
_UNIONS = {"backoff", "removeOnComplete", "removeOnFail"}
_BRANCHES = {"Backoff", "Retention", "bool", "constrained-int"}


def may_be_newer(error: ValidationError) -> bool:
    """Return whether a newer release may accept the value: it has a field or choice unknown here.

    All errors count, not only the first.
    """
    return any(each["type"] in _NEWER for each in error.errors(include_url=False))


def validation_error(error: ValidationError) -> str:
    """Return the field and the message of the first error.

    pydantic reports an error for each type that a field may have. The message is about the type
    whose error lies deepest in the field, or whose rule was broken by a value of that type.
    """
    problems = [(_place(problem), problem) for problem in error.errors(include_url=False)]
    first = problems[0][0]
    problems = [(place, each) for place, each in problems if place[: len(first)] == first]
    depth = max(len(place) for place, _ in problems)
    problems = [(place, each) for place, each in problems if len(place) == depth]
    rules = [(place, each) for place, each in problems if each["type"] not in _KINDS]
    place, problem = (rules or problems)[0]
    where = _spell(place)
    if rules:
        own = _MESSAGES.get(problem["type"])
        return f"{where}: {own or problem['msg'].removeprefix('Value error, ')}"
    kinds = dict.fromkeys(_KINDS[each["type"]] for _, each in problems)
    return f"{where}: Input should be {' or '.join(kinds)}"


def _place(problem: ErrorDetails) -> tuple[int | str, ...]:
    """Return the location of an error without the names of types that pydantic adds."""
    parts = problem["loc"]
    return tuple(
        part
        for before, part in zip(("", *parts), parts, strict=False)
        if not (before in _UNIONS and part in _BRANCHES)
    )


def _spell(place: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")
