"""The interface through which the store and the driver report what they did; metrics implement it.

The methods are called while groups are being processed, so an implementation must be quick.
"""

from jobgroup.model.snapshot import Settled


class Observer:
    """An observer that ignores everything."""

    def script_answered(self, script: str, calls: int, seconds: float | None) -> None:
        """Record one round trip with calls of a script; its time is None if it includes a wait."""

    def groups_created(self, groups: int) -> None:
        """Record that this number of groups was created."""

    def group_settled(self, settled: Settled) -> None:
        """Record that a group changed."""

    def group_released(self) -> None:
        """Record that a group lost its owner and is removed after its end."""

    def released_group_removed(self) -> None:
        """Record that a released group was removed."""


SILENT = Observer()
