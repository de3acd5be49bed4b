"""How the demo's orders must end, and the sentence that says so when they did not. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.examples import BOOKS

ENDED = ("COMPLETED", "FAILED", "FAILED_COMPENSATION")


class Unexpected(Exception):
    """An order did not end as it must; the message says which, and how it did."""


@dataclass(frozen=True)
class Order:
    """One of the example's files, and the end that is expected of it."""

    file: str
    name: str
    end: str
    events: frozenset[str]

    def is_over(self, status: Mapping[str, Any], events: Collection[str]) -> bool:
        """Say whether nothing more is to come of it; what is wrong already stays wrong."""
        if status.get("state") not in ENDED:
            return False
        return self.events.issubset(events) or ending(status) != self.end

    def check(self, status: Mapping[str, Any], events: Collection[str]) -> None:
        """Refuse another end than the expected one."""
        if ending(status) != self.end:
            failure = (status.get("failure") or {}).get("reason")
            why = f" ({failure})" if failure else ""
            raise Unexpected(f"{self.name} should be {self.end}, and is {ending(status)}{why}.")
        if missing := sorted(self.events - set(events)):
            raise Unexpected(f"{self.name} lacks the events {', '.join(missing)}.")


ORDERS = (
    Order("order.yaml", "order-123", "COMPLETED with 3/3 completed", frozenset()),
    Order(
        "order-refused.yaml",
        "order-124",
        "FAILED with 2/3 completed and 2/2 undone",
        frozenset({"Failed", "Compensating", "Compensated"}),
    ),
)


def ending(status: Mapping[str, Any]) -> str:
    """Say where an order stands, in one line."""
    state, progress = status.get("state", "PENDING"), status.get("progress")
    said = f"{state} with {progress} completed" if progress else state
    return f"{said} and {status['undone']} undone" if status.get("undone") else said


def check_books(books: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse books that hold anything of the order that was undone, or lack any of the other."""
    if books != BOOKS:
        raise Unexpected(
            f"The shop should have {entries(BOOKS)} in its books, and has {entries(books)}."
        )


def entries(books: Mapping[str, Mapping[str, str]]) -> str:
    """Name what is in the books."""
    every = [f"{entry} {value}" for book in books.values() for entry, value in book.items()]
    return ", ".join(every) or "nothing"
