"""One exception for each error code of the scripts."""

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
from jobgroup.store.scripts import FOLDER


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (GroupNotFoundError("g"), "Group g not found"),
        (GroupExistsError("g"), "Group g already exists with another definition"),
        (GroupRemovedError("g"), "Group g was removed and cannot be created again"),
        (
            RedisStateLostError("g"),
            "Redis has lost part of the data of group g; it will not be run again:"
            " check which of its jobs ran",
        ),
        (
            JobExistsError("bull:q:g-0"),
            "Job bull:q:g-0 already exists",
        ),
    ],
)
def test_a_refusal_names_its_subject(error: Exception, sentence: str) -> None:
    assert str(error) == sentence


def test_all_exceptions_have_one_base_class() -> None:
    raised = [one for one in vars(errors).values() if isinstance(one, type)]
    assert all(issubclass(one, JobGroupError) for one in raised)


def test_every_error_code_of_a_script_has_an_exception() -> None:
    texts = [path.read_text() for path in FOLDER.rglob("*.lua")]
    declared = {
        code
        for text in texts
        for line in re.findall(r"^  Errors +(.*)$", text, re.MULTILINE)
        for code in line.split()
    }
    answered = {code for text in texts for code in re.findall(r'error_reply\("([A-Z]+) ', text)}
    assert answered <= declared
    assert declared == {kind.code for kind in RefusedError.__subclasses__() if kind.code}
