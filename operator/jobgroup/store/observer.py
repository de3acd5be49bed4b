"""What the core does, told to whoever counts it. Here nobody does: an observer overrides what it
wants to hear, and must be quick about it, for it is called in the middle of things.
"""

from jobgroup.snapshot import GroupState, State


class Observer:
    """Hears of everything and does nothing."""

    def ran(self, script: str, seconds: float) -> None:
        """Hear that Redis has answered calls of a script, and what was sent with them."""

    def created(self, groups: int) -> None:
        """Hear that so many groups were made."""

    def moved(
        self, before: State, group: GroupState, undone: int = 0, undo_failed: int = 0
    ) -> None:
        """Hear that a group has moved on, and how many of its undos have ended since."""


SILENT = Observer()
