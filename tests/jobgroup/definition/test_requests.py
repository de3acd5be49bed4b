"""Who asks for something, and why: one line each, of a limited length."""

import pytest

from jobgroup import InvalidSpecError
from jobgroup.definition.requests import MAX_BY, MAX_REASON, check_by, check_reason


def test_a_request_has_a_requester_and_a_reason() -> None:
    assert check_by("ann") == "ann"
    assert check_by("") == ""
    assert check_by("x" * MAX_BY)
    assert check_reason("refunded by hand, ticket 4711 ✓")
    assert check_reason("x" * MAX_REASON)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("x" * (MAX_BY + 1), "by: 254 characters exceed the limit of 253"),
        ("ann\nben", "by: Input should be one line of printable characters"),
        ("\ud800", "by: Input should be one line of printable characters"),
        (7, "by: Input should be a string"),
    ],
)
def test_a_requester_that_cannot_be_recorded_is_refused(by: str, message: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        check_by(by)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("x" * 1_000_000, "reason: 1000000 characters exceed the limit of 1024"),
        ("", "reason: say why, in at least one word"),
        ("  ", "reason: say why, in at least one word"),
        ("a\x1b[2J", "reason: Input should be one line of printable characters"),
        (None, "reason: Input should be a string"),
    ],
)
def test_a_reason_that_cannot_be_recorded_is_refused(reason: str, message: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        check_reason(reason)
    assert str(refusal.value) == message
