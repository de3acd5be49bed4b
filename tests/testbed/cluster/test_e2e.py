"""The arguments that `make e2e ARGS=...` passes to pytest."""

import pytest

from testbed.cluster.e2e import chosen_tests

STORIES = "tests/e2e"


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ([], [STORIES]),
        (["-k", "cancel"], [STORIES, "-k", "cancel"]),
        ([f"{STORIES}/test_cancel.py", "-x"], [f"{STORIES}/test_cancel.py", "-x"]),
    ],
    ids=["none", "options", "a file"],
)
def test_all_stories_run_unless_files_are_named(arguments: list[str], chosen: list[str]) -> None:
    assert chosen_tests(arguments) == chosen
