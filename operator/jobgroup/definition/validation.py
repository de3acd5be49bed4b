"""One sentence of what pydantic found wrong with a definition: what, and where."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

# What pydantic calls a value of the wrong kind, and what we say it should have been.
_KINDS = {
    "bool_type": "true or false",
    "int_type": "an integer",
    "model_type": "a mapping",
    "string_type": "a text",
}
# What pydantic says in words that are not ours.
_SENTENCES = {
    "extra_forbidden": "there is no such option",
    "string_pattern_mismatch": (
        "Input should be 1 to 63 letters, digits, dots, underscores or hyphens"
    ),
    "string_unicode": "Input should be whole characters, not half a surrogate pair",
}
# Fields that may be of several kinds, and how pydantic names the kinds in a location.
_UNIONS = {"backoff", "removeOnComplete", "removeOnFail"}
_BRANCHES = {"Backoff", "Retention", "bool", "constrained-int"}


def sentence(error: ValidationError) -> str:
    """Say what is wrong and where, about the first thing that is.

    Of a field that may be of several kinds, pydantic says what is wrong with it as each of them.
    The one that came furthest, or broke a rule and had the right kind, is the one meant.
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
        said = _SENTENCES.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        return f"{where}: {said}"
    kinds = dict.fromkeys(_KINDS[each["type"]] for _, each in problems)
    return f"{where}: Input should be {' or '.join(kinds)}"


def _place(problem: ErrorDetails) -> tuple[int | str, ...]:
    """Return where a problem is, without the kinds of a union that pydantic tried."""
    parts = problem["loc"]
    return tuple(
        part
        for before, part in zip(("", *parts), parts, strict=False)
        if not (before in _UNIONS and part in _BRANCHES)
    )


def _spell(place: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")
