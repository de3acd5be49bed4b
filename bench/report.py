"""What a run prints: the rows of each part, then the summary."""

from collections.abc import Sequence
from dataclasses import asdict

from bench.results import Results, loads, plain
from bench.rows import Row, by_margin
from bench.sizes import QUICK

VERDICTS = {True: "holds", False: "MISSED", None: ""}


def number(value: float) -> str:
    """Format a number with four digits."""
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def amount(value: float, unit: str) -> str:
    """Format a number with its unit."""
    return f"{number(value)} {unit}".rstrip()


def details(rows: Sequence[Row]) -> list[str]:
    """Format the rows of a part: identifier, value, bar, spread and text."""
    return [
        f"  {row.id:<58} {amount(row.value, row.of.unit):>14}  {row.of.bar:<8} "
        f"{VERDICTS[row.holds]:<6}  {spread_of(row):<18}  {row.of.what}"
        for row in rows
    ]


def spread_of(row: Row) -> str:
    """Format the spread of a row."""
    return f"{number(row.low)}..{number(row.high)}" if row.rounds > 1 else ""


def summary(results: Results) -> list[str]:
    """Format every row that has a bar; the worst margins are on top, and missed bars repeated."""
    rows = by_margin(results.rows)
    missed = [row for row in rows if not row.holds]
    again = ", ".join(f"{row.id} ({amount(row.value, row.of.unit)})" for row in missed)
    failed = [part for part in results.parts if part.error]
    quick = results.sizes == plain(asdict(QUICK))
    facts = ", ".join(f"{name} {fact}" for name, fact in results.machine.items())
    return [
        f"Summary of {results.date}, commit {results.commit}, {loads(results.parts)}",
        f"({facts})",
        *(["BENCH_QUICK: with sizes this small, the values and the bars mean nothing"] * quick),
        "",
        f"{'':<8}{'row':<58} {'value':>14}  {'bar':<9} {'margin':>7}",
        *(
            f"{'' if row.holds else 'MISSED':<8}{row.id:<58} {amount(row.value, row.of.unit):>14}  "
            f"{row.of.bar:<9} {margin(row):>7}"
            for row in rows
        ),
        "",
        *(f"FAILED: part {part.name}: {part.error}" for part in failed),
        f"{len(rows) - len(missed)} of {len(rows)} bars hold"
        + ("; MISSED: " + again) * bool(missed),
    ]


def margin(row: Row) -> str:
    """Format the distance of a row from its bar."""
    assert row.margin is not None, "the row has a bar"
    if row.of.exact and row.margin == 0:
        return "exact"
    return f"{row.margin:+.0%}"
