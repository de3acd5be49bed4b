"""The checkpoint of a stream reader stays before the first object that is not reconciled."""

import pytest

from handlers.jobgroups.checkpoint import Checkpoint, is_older
from jobgroup.store.streams import START


def test_a_new_checkpoint_is_the_start_of_the_stream() -> None:
    assert Checkpoint[str]().start_after({}.__contains__) == START


@pytest.mark.parametrize(
    ("owed", "begin_after"),
    [
        ("", "9-0"),
        ("a", "5-0"),
        ("b", "6-0"),
        ("c", "8-0"),
        # The objects are reconciled in another order than the entries.
        ("ca", "5-0"),
        ("cb", "6-0"),
    ],
)
def test_the_checkpoint_stays_before_the_first_dirty_object(owed: str, begin_after: str) -> None:
    checkpoint = Checkpoint[str]("5-0")
    entries = (("6-0", "a"), ("6-1", "b"), ("7-0", "a"), ("8-0", None), ("9-0", "c"))
    for entry, key in entries:
        checkpoint.read(entry, key)
    assert checkpoint.read_to == "9-0"
    assert checkpoint.start_after(owed.__contains__) == begin_after


def test_a_reconciled_object_holds_the_checkpoint_only_from_its_next_entry() -> None:
    checkpoint = Checkpoint[str]()
    checkpoint.read("1-0", "a")
    assert checkpoint.start_after("".__contains__) == "1-0"
    checkpoint.read("2-0", "b")
    checkpoint.read("3-0", "a")
    assert checkpoint.start_after("a".__contains__) == "2-0"


@pytest.mark.parametrize(
    ("entry", "other", "older"),
    [
        (START, "1-0", True),
        ("9-0", "10-0", True),
        ("10-9", "10-10", True),
        ("10-1", "10-1", False),
        ("10-0", "9-9", False),
    ],
)
def test_entries_are_compared_as_numbers(entry: str, other: str, older: bool) -> None:
    assert is_older(entry, other) is older
