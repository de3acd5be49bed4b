"""The expected ends of the demo's orders, and the error if one ends differently. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.support.examples import BOOKS

ENDED = ("COMPLETED", "FAILED", "FAILED_COMPENSATION")


class Unexpected(Exception):
    """An order did not end as expected; the message names the order and its state."""


@dataclass(frozen=True)
class Order:
    """One of the example's files, and its expected end."""

    file: str
    name: str
    end: str
    events: frozenset[str]

    def is_over(self, status: Mapping[str, Any], events: Collection[str]) -> bool:
        """Return whether the order has ended, with all expected Events or in another state."""
        if status.get("state") not in ENDED:
            return False
        return self.events.issubset(events) or ending(status) != self.end

    def check(self, status: Mapping[str, Any], events: Collection[str]) -> None:
        """Raise Unexpected if the order did not end as expected."""
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
    """Return the state of an order as a phrase."""
    state, progress = status.get("state", "PENDING"), status.get("progress")
    phrase = f"{state} with {progress} completed" if progress else state
    return f"{phrase} and {status['undone']} undone" if status.get("undone") else phrase


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
