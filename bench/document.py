"""Write measured values into docs/performance.md: `python -m bench.document [results.json ...]`.

A line of its tables is `| what | measured | bar | row |`; the row is an identifier. The values are
those of the given results, or of all that are kept; newer ones replace older ones. Lines whose
row no result has keep their values, and their rows are printed. The bars are those of the
catalogue.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.catalogue import CATALOGUE
from bench.results import FOLDER, Results, kept
from bench.rows import Row
from testbed import ROOT

PAGE = ROOT / "docs/performance.md"
LINE = re.compile(r"^\| (.+) \| (.*?) ?\| (.*?) ?\| `(\w+\.[^`]+)` \|$", re.MULTILINE)


def documented(page: str) -> list[tuple[str, str]]:
    """Return the identifier and the bar of each line of the tables."""
    return [(match[4], match[3]) for match in LINE.finditer(page)]


def measured(row: Row) -> str:
    """Format the value of a row and the spread of its rounds, with three digits."""
    value, low, high = (short(each) for each in (row.value, row.low, row.high))
    spread = f" ({low} to {high})" if low != high else ""
    return f"{value} {row.of.unit}".rstrip() + spread


def short(value: float) -> str:
    """Format a number with three digits, or as a whole number."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def fill_in(page: str, rows: Mapping[str, Row]) -> str:
    """Return the page with the values of these rows and the bars of today."""

    def line(match: re.Match[str]) -> str:
        what, value, bar, name = match.groups()
        if name in rows:
            value = measured(rows[name])
        if (measure := name.partition("[")[0]) in CATALOGUE:
            bar = CATALOGUE[measure].bar
        return f"| {what} | {value} | {bar} | `{name}` |".replace("|  |", "| |")

    return LINE.sub(line, page)


def main(arguments: Sequence[str]) -> None:
    """Write the values into the page."""
    runs = [Results.read(Path(path)) for path in arguments or kept(FOLDER)]
    rows = {row.id: row for run in sorted(runs, key=lambda run: run.date) for row in run.rows}
    page = PAGE.read_text()
    PAGE.write_text(fill_in(page, rows))
    missing = [name for name, _ in documented(page) if name not in rows]
    print(f"Wrote {PAGE}; not measured: {', '.join(missing) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
