"""What all steps of a history share."""

from collections.abc import Iterable
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from tests.sagas.histories.ground import QUEUES, Ground
from tests.sagas.histories.world import World

T = TypeVar("T")

queues = st.sampled_from(QUEUES)
# The index of the job or group that a step uses.
which = st.integers(0, 7)


class Steps(RuleBasedStateMachine):
    """A history of one world."""

    ground: Ground
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def any_id(self, n: int) -> str:
        """Return the id of a group that exists or existed."""
        ids = list(self.world.definitions)
        return ids[n % len(ids)]


def pick(candidates: Iterable[T], n: int) -> T | None:
    found = list(candidates)
    return found[n % len(found)] if found else None
