"""One exception for each refusal, and each script's codes are known."""

import re

import pytest

from jobgroup import errors
from jobgroup.errors import (
    GroupExistsError,
    GroupNotFoundError,
    GroupRemovedError,
    JobExistsError,
    JobGroupError,
    RedisStateLostError,
    RefusedError,
)
from jobgroup.scripts import FOLDER


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (GroupNotFoundError("g"), "Group g not found"),
        (GroupExistsError("g"), "Group g already exists with another definition"),
        (GroupRemovedError("g"), "Group g was removed and cannot be made again"),
        (RedisStateLostError("g"), "Redis has lost a part of group g; it is not run again"),
        (JobExistsError("bull:q:g-0"), "Job bull:q:g-0 already exists"),
    ],
)
def test_a_refusal_names_what_it_is_about(error: Exception, sentence: str) -> None:
    assert str(error) == sentence


def test_all_that_is_raised_on_purpose_has_one_root() -> None:
    raised = [one for one in vars(errors).values() if isinstance(one, type)]
    assert all(issubclass(one, JobGroupError) for one in raised)


def test_every_code_that_a_script_answers_with_has_its_exception() -> None:
    texts = [path.read_text() for path in FOLDER.rglob("*.lua")]
    answered = {code for text in texts for code in re.findall(r'error_reply\("([A-Z]+) ', text)}
    assert answered == {kind.code for kind in RefusedError.__subclasses__() if kind.code}
