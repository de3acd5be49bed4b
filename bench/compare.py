"""Compare the results of two runs: `make bench-compare`, or `python -m bench.compare [OLD NEW]`.

Without arguments, compare the newest results with the last ones before them that have the same
sizes and a part in common. Print the rows that changed by more than their spread.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.report import amount
from bench.results import FOLDER, Results, kept, loads
from bench.rows import Row, changed


def choose(paths: Sequence[Path]) -> tuple[Path, Path] | None:
    """Return the newest results, and before them the last that can be compared with them."""
    if not paths:
        return None
    new = Results.read(paths[-1])
    ids = {row.id for row in new.rows}
    for path in reversed(paths[:-1]):
        old = Results.read(path)
        # An older run does not have sizes that were added since.
        same = all(new.sizes.get(name, size) == size for name, size in old.sizes.items())
        if same and ids & {row.id for row in old.rows}:
            return path, paths[-1]
    return None


def compare(old: Results, new: Results) -> list[str]:
    """Format what differs between two runs."""
    olds, news = ({row.id: row for row in each.rows} for each in (old, new))
    pairs = [(olds[each], news[each]) for each in news if each in olds]
    rows = [pair for pair in pairs if changed(*pair)]
    rows.sort(key=lambda pair: distance(*pair), reverse=True)
    return [
        *(f"{who}: {each.date}, {loads(each.parts)}" for who, each in (("old", old), ("new", new))),
        *(f"{name}: {was} -> {now}" for name, was, now in facts(old, new) if was != now),
        "",
        f"{len(rows)} of {len(pairs)} rows changed by more than their spread",
        *(line(*pair) for pair in rows),
        *only("old", [each for each in olds if each not in news]),
        *only("new", [each for each in news if each not in olds]),
    ]


def facts(old: Results, new: Results) -> list[tuple[str, Any, Any]]:
    """Return what may explain a difference: commits, sizes, versions."""
    sizes = [(name, old.sizes.get(name), size) for name, size in new.sizes.items()]
    machine = [(name, old.machine.get(name), fact) for name, fact in new.machine.items()]
    return [("commit", old.commit, new.commit), *sizes, *machine]


def distance(old: Row, new: Row) -> float:
    """Return how much a row changed, whichever the direction."""
    low, high = sorted((abs(old.value), abs(new.value)))
    return high / low if low else float("inf")


def line(old: Row, new: Row) -> str:
    """Format a row that changed."""
    unit, ratio = new.of.unit, f"{new.value / old.value:.2f} x" if old.value else "-"
    values = f"{amount(old.value, unit):>14} -> {amount(new.value, unit):>14}  {ratio:>8}"
    return f"  {new.id:<58} {values}  {verdict(old, new)}".rstrip()


def verdict(old: Row, new: Row) -> str:
    """Return whether a row became better or worse, and whether it crossed its bar of today."""
    old = replace(old, of=new.of)
    if old.margin is None or new.margin is None:
        return ""
    crossed = {(True, False): ", now MISSED", (False, True): ", now holds"}
    word = "better" if new.margin > old.margin else "worse"
    return word + crossed.get((bool(old.holds), bool(new.holds)), "")


def only(which: str, ids: Sequence[str]) -> list[str]:
    """Format how many rows of which parts only one of the runs has."""
    parts = ", ".join(dict.fromkeys(each.partition(".")[0] for each in ids))
    return [f"only in {which}: {len(ids)} rows of {parts}"] if ids else []


def main(arguments: Sequence[str]) -> None:
    """Compare two files, or the last two results that can be compared."""
    if len(arguments) not in (0, 2):
        sys.exit("make bench-compare: give both OLD=file and NEW=file, or neither")
    paths = [Path(argument) for argument in arguments]
    for path in paths:
        if not path.is_file():
            sys.exit(f"make bench-compare: {path} does not exist; `make bench` writes {FOLDER}/")
    chosen = (paths[0], paths[1]) if paths else choose(kept(FOLDER))
    if chosen is None:
        sys.exit(f"make bench-compare: {FOLDER} has no two results of the same rows and sizes")
    print("\n".join(compare(*map(Results.read, chosen))))


if __name__ == "__main__":
    main(sys.argv[1:])
