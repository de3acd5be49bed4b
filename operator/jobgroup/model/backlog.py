"""The jobs of one queue at one moment, as read_backlog.lua counts them. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backlog:
    """One queue at one moment.

    `due` counts the delayed jobs that are due soon enough to count; `next_in` is the milliseconds
    until the first of the others is due.
    """

    known: bool
    paused: bool
    waiting: int
    prioritized: int
    active: int
    delayed: int
    due: int
    next_in: int | None
    event: str

    @property
    def demand(self) -> int:
        """Return the jobs that need a worker now or soon.

        Workers take no job from a paused queue. Active jobs count even if their worker is dead: a
        new worker finds them and runs them again.
        """
        runnable = 0 if self.paused else self.waiting + self.prioritized + self.due
        return runnable + self.active
