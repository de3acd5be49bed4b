"""Rows of the results. To add a row:

1. Add a line to catalogue.py, under the part that measures it: a name, a text, a unit, and a bar if
   the project sets a limit. Bars are nowhere else.
2. Return `row("part.name", value)` from the function of that part. Pass the values of all rounds
   instead of one number if there are rounds: the row then has a spread, and is their median, or
   what `pick` makes of them. `case` tells apart rows of one measure, such as sizes.
3. docs/performance.md has every row with a bar: add a line to a table there. `python -m
   bench.document` writes values and bars into these tables.
4. A new part is a function `async def name(bench: Bench) -> list[Row]`; list it in parts.py.

Keep the name when the text changes: results of different days are compared by it. `exact=True` is
for a number that does not vary from run to run: a comparison shows a change of half a percent.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median, quantiles
from typing import Any, Self

from bench.catalogue import CATALOGUE, Measure

# Of fewer rounds, the spread is from the smallest to the largest.
ROUNDS_WITH_QUARTILES = 5
# A value that was measured once has no spread; a smaller change of it is not reported.
TOLERANCE = 0.2
# Ids and times are not equally long in each run, so that even memory varies a little.
EXACT_TOLERANCE = 0.005


@dataclass(frozen=True, slots=True)
class Row:
    """One measured number."""

    measure: str
    case: str
    of: Measure
    value: float
    # The spread of the rounds; both equal the value if there are none.
    low: float
    high: float
    rounds: int

    @property
    def id(self) -> str:
        """Return what identifies the row in results of different days."""
        return f"{self.measure}[{self.case}]" if self.case else self.measure

    @property
    def holds(self) -> bool | None:
        """Return whether the bar is met; None if there is no bar."""
        if self.of.at_least is not None:
            return self.value >= self.of.at_least
        return None if self.of.at_most is None else self.value <= self.of.at_most

    @property
    def margin(self) -> float | None:
        """Return how far the value is from its bar, as a share of the bar; negative if missed."""
        if self.of.at_least is not None:
            return (self.value - self.of.at_least) / self.of.at_least
        if self.of.at_most is None:
            return None
        # A bar of 0 has no shares.
        return (self.of.at_most - self.value) / (self.of.at_most or 1)

    def to_json(self) -> dict[str, Any]:
        """Return the row as it is written to the results."""
        told = {"id": self.id, **asdict(self)}
        return {**told, "bar": self.of.bar, "holds": self.holds, "margin": self.margin}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Self:
        """Return a row of results that were written earlier."""
        known = {each.name: row[each.name] for each in fields(cls)}
        return cls(**{**known, "of": Measure(**row["of"])})


def row(
    measure: str,
    value: float | Sequence[float],
    case: str = "",
    pick: Callable[[Sequence[float]], float] = median,
) -> Row:
    """Return the row of a measure in the catalogue."""
    assert measure in CATALOGUE, f"{measure} is not in bench/catalogue.py"
    of = CATALOGUE[measure]
    if not isinstance(value, Sequence):
        return Row(measure, case, of, float(value), float(value), float(value), 1)
    low, high = spread(value)
    picked = float(pick(value))
    return Row(measure, case, of, picked, min(low, picked), max(high, picked), len(value))


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the quartiles of the values, or the smallest and the largest of a few."""
    if len(values) < ROUNDS_WITH_QUARTILES:
        return float(min(values)), float(max(values))
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def by_margin(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have a bar: missed ones first, then by margin.

    An exact number that equals its bar is last: it will not miss it by chance.
    """

    def order(row: Row) -> tuple[bool, bool, float]:
        assert row.margin is not None, "rows without a bar are left out"
        return bool(row.holds), row.of.exact and row.margin == 0, row.margin

    return sorted((row for row in rows if row.holds is not None), key=order)


def changed(old: Row, new: Row) -> bool:
    """Return whether a row changed by more than its spread."""
    if new.of.exact:
        return abs(new.value - old.value) > EXACT_TOLERANCE * abs(old.value)
    if old.rounds > 1 and new.rounds > 1:
        return new.low > old.high or new.high < old.low
    return abs(new.value - old.value) > TOLERANCE * abs(old.value)
