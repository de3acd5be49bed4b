"""When the counts of a group are worth a look at its object."""

import pytest

from handlers.follow import NO_GROUP, Counts, has_moved


@pytest.mark.parametrize(
    ("before", "counts", "moved"),
    [
        # Not made yet, or lost before the first look: one look tells which.
        (None, NO_GROUP, True),
        (NO_GROUP, NO_GROUP, False),
        # New: the object tells of no job that ended.
        (None, (1, 0, 0), False),
        (NO_GROUP, (1, 0, 0), False),
        (None, (1, 1, 0), True),
        (NO_GROUP, (1, 1, 0), True),
        # Under way.
        ((1, 1, 0), (1, 1, 0), False),
        ((1, 1, 0), (1, 2, 0), True),
        # Settled, and the word of it was lost.
        ((1, 3, 0), (2, 3, 0), True),
        # Lost.
        ((1, 1, 0), NO_GROUP, True),
    ],
)
def test_counts_that_moved(before: Counts | None, counts: Counts, moved: bool) -> None:
    assert has_moved(before, counts) is moved
