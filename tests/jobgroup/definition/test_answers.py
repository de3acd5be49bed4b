"""What completes a job, or lets it fail, without a worker."""

from typing import Any

import pytest

from jobgroup import InvalidSpecError
from jobgroup.definition.answers import MAX_VALUE, completion, failure


def test_equal_answers_have_one_digest() -> None:
    value = {"b": [1, None], "a": "\u00e9"}
    answer = completion(value, "ann")
    assert (answer.outcome, answer.text, answer.by) == (
        "completed",
        '{"b":[1,null],"a":"\u00e9"}',
        "ann",
    )
    assert completion({"a": "\u00e9", "b": [1.0, None]}, "ben").digest == answer.digest
    others = [completion(None, ""), completion("no", ""), failure("no", ""), completion([], "")]
    assert len({each.digest for each in (answer, *others)}) == 5
    assert completion("\ud800", "").text == '"\\ud800"'


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("inf"), "value cannot be written as JSON: Out of range float"),
        ({1: 2}, "value cannot be written as JSON: the key 1 is not a text"),
        ({"a": {1}}, "value cannot be written as JSON: "),
        ("x" * MAX_VALUE, f"value: {MAX_VALUE + 2} bytes exceed the limit of {MAX_VALUE}"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        completion(value, "ann")
    assert str(refusal.value).startswith(message)
    assert completion("x" * (MAX_VALUE - 2), "ann")


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    value: list[Any] = []
    for _ in range(300):
        value = [value]
    with pytest.raises(InvalidSpecError, match=r"^value cannot be written as JSON: it is nested"):
        completion(value, "ann")
