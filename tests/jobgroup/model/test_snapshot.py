"""Which states end a group."""

import pytest

from jobgroup.model.snapshot import ENDED, STATES
from tests.builders import group


@pytest.mark.parametrize("state", STATES)
def test_a_group_has_ended_in_a_terminal_state(state: str) -> None:
    assert group(state).ended == (state in ENDED)


@pytest.mark.parametrize(
    ("fields", "compensated"),
    [
        ({}, False),
        ({"failed_at": 1500}, True),
        ({"failed_at": 1500, "finished_at": 1500}, False),
        ({"failed_at": 1500, "finished_at": 1501}, True),
        ({"failed_at": 1500, "finished_at": 1500, "completed_count": 1}, True),
        ({"failed_at": 1500, "finished_at": 1500, "undo_count": 1}, True),
    ],
)
def test_whether_a_group_was_compensating(fields: dict[str, int], compensated: bool) -> None:
    assert group("FAILED", **fields).was_compensating == compensated
