"""Every reason is a constant, and the tables in the docs list each constant and no other word."""

import ast
import re
from collections.abc import Iterator

import pytest

from jobgroup import errors
from jobgroup.errors import RefusedError
from jobgroup.resource import reasons
from testbed import ROOT

OPERATOR = ROOT / "operator"
MODULE = OPERATOR / "jobgroup/resource/reasons.py"
DOCS = (ROOT / "docs/resource.md", ROOT / "docs/workerpool.md")

CONSTANTS = {name: value for name, value in vars(reasons).items() if isinstance(value, str)}
CONSTANTS = {name: value for name, value in CONSTANTS.items() if name.isupper()}

# The place of the reason among the arguments.
CALLS = {"Problem": 0, "ResourceEvent": 1, "condition": 2}
# Words that mean something else there: the type of a condition, when to run an undo, an exception.
OTHER_MEANINGS = {
    ("jobgroup/resource/status.py", reasons.COMPENSATED),
    ("jobgroup/definition/spec.py", reasons.COMPLETED),
    ("jobgroup/definition/spec.py", reasons.FAILED),
    ("jobgroup/store/connection.py", reasons.REDIS_ERROR),
}


def documented() -> Iterator[str]:
    """Yield the words in the column of reasons, of each table that has one."""
    for page in DOCS:
        column = None
        for line in page.read_text().splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if not line.startswith("|"):
                column = None
            elif column is not None:
                yield from re.findall(r"`(\w+)`", cells[column])
            else:
                column = next((i for i, cell in enumerate(cells) if cell == "reason"), None)


def sources() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(OPERATOR.rglob("*.py")):
        if path != MODULE:
            yield str(path.relative_to(OPERATOR)), ast.parse(path.read_text())


def reason_argument(call: ast.Call) -> ast.expr | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in CALLS:
        return None
    by_name = [each.value for each in call.keywords if each.arg == "reason"]
    by_place = call.args[CALLS[name] : CALLS[name] + 1]
    return next(iter([*by_name, *by_place]), None)


def test_each_constant_is_named_as_its_value_and_is_a_valid_reason() -> None:
    for name, value in CONSTANTS.items():
        assert name.replace("_", "") == value.upper()
        assert re.fullmatch("[A-Z][A-Za-z]*", value)
    assert len(set(CONSTANTS.values())) == len(CONSTANTS)


def test_each_constant_has_a_comment() -> None:
    lines = MODULE.read_text().splitlines()
    commented = [re.match(r'([A-Z_]+) = "\w+"  # \w', line) for line in lines]
    assert {found[1] for found in commented if found} == CONSTANTS.keys()


def test_the_docs_list_every_constant_and_no_other_word() -> None:
    assert set(documented()) == set(CONSTANTS.values())


def test_each_refusal_has_a_reason() -> None:
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    refusals = {each for each in classes if issubclass(each, RefusedError)} - {RefusedError}
    assert reasons.REFUSALS.keys() == refusals
    assert set(reasons.REFUSALS.values()) <= set(CONSTANTS.values())


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (errors.GroupExistsError("g"), "GroupExists"),
        (errors.CorruptKeyError("bull:g"), "CorruptKey"),
    ],
)
def test_a_refusal_is_reported_with_its_reason(refusal: RefusedError, reason: str) -> None:
    assert reasons.for_refusal(refusal) == reason


@pytest.mark.parametrize(
    ("is_transient", "reason"), [(True, "RedisUnavailable"), (False, "RedisError")]
)
def test_a_redis_error_is_reported_by_whether_it_passes(is_transient: bool, reason: str) -> None:
    assert reasons.for_redis_error(is_transient) == reason


def test_no_call_is_given_a_literal_reason() -> None:
    calls = [
        (where, node)
        for where, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and reason_argument(node) is not None
    ]
    assert len(calls) > 10
    literal = [
        f"{where}:{call.lineno}"
        for where, call in calls
        if isinstance(reason_argument(call), (ast.Constant, ast.JoinedStr))
    ]
    assert literal == []


def test_no_literal_repeats_a_constant() -> None:
    words = set(CONSTANTS.values())
    repeated = {
        (where, node.value)
        for where, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in words
    }
    assert repeated == OTHER_MEANINGS


def test_a_literal_reason_is_found() -> None:
    literal = ast.parse('Problem("X", "y")\nevents.ResourceEvent("Normal", reason="Z", message="")')
    found = [reason_argument(node) for node in ast.walk(literal) if isinstance(node, ast.Call)]
    assert [isinstance(each, ast.Constant) and each.value for each in found] == ["X", "Z"]
