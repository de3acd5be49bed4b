"""Where a reader of a stream begins again: at the first object that nobody has looked at."""

import pytest

from handlers.bookmark import Bookmark, is_older
from jobgroup.streams import START


def test_who_has_read_nothing_begins_at_the_start() -> None:
    assert Bookmark[str]().begin_after({}.__contains__) == START


@pytest.mark.parametrize(
    ("owed", "begin_after"),
    [
        ("", "9-0"),
        ("a", "5-0"),
        ("b", "6-0"),
        ("c", "8-0"),
        # Looked at in another order than they were told of.
        ("ca", "5-0"),
        ("cb", "6-0"),
    ],
)
def test_the_first_object_that_is_owed_a_look_keeps_the_place(owed: str, begin_after: str) -> None:
    bookmark = Bookmark[str]("5-0")
    entries = (("6-0", "a"), ("6-1", "b"), ("7-0", "a"), ("8-0", None), ("9-0", "c"))
    for entry, key in entries:
        bookmark.read(entry, key)
    assert bookmark.read_to == "9-0"
    assert bookmark.begin_after(owed.__contains__) == begin_after


def test_what_was_looked_at_is_owed_again_from_its_next_entry_on() -> None:
    bookmark = Bookmark[str]()
    bookmark.read("1-0", "a")
    assert bookmark.begin_after("".__contains__) == "1-0"
    bookmark.read("2-0", "b")
    bookmark.read("3-0", "a")
    assert bookmark.begin_after("a".__contains__) == "2-0"


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
def test_entries_are_numbers_and_not_texts(entry: str, other: str, older: bool) -> None:
    assert is_older(entry, other) is older
