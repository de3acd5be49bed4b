"""Run all benchmarks; print the table and write it to a file: `python -m bench [results.json]`.

BENCH_ONLY names those to run, separated by commas. A missed bar is not an error, because the
machine may have been busy.
"""

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from bench.creation import creation
from bench.driving import driving
from bench.failing import failing
from bench.fairness import fairness
from bench.growth import growth
from bench.harness import Bench, Row
from bench.noticing import noticing
from bench.operating import operating
from bench.recovering import recovering
from bench.scaling import scaling
from bench.settling import settling

RESULTS = Path(__file__).with_name("results.json")
BENCHMARKS = (
    creation,
    settling,
    failing,
    driving,
    noticing,
    growth,
    operating,
    recovering,
    scaling,
    fairness,
)
VERDICTS = {True: "holds", False: "MISSED", None: ""}


def line(row: Row) -> str:
    """Format one row."""
    number = f"{row.value:,.4g}" if row.value < 1000 else f"{row.value:,.0f}"
    return f"{row.what:<70} {number:>9} {row.unit:<6} {row.bar:<7} {VERDICTS[row.holds]}".rstrip()


async def measure_all() -> list[Row]:
    """Run the benchmarks; print each row as soon as it is measured."""
    rows: list[Row] = []
    only = os.environ.get("BENCH_ONLY", "").split(",")
    async with Bench.start() as bench:
        for measure in BENCHMARKS:
            if any(only) and measure.__name__ not in only:
                continue
            for row in await measure(bench):
                print(line(row), flush=True)
                rows.append(row)
    return rows


def main(results: Path) -> None:
    """Run all benchmarks and write the results to a file."""
    rows = asyncio.run(measure_all())
    content = [{**asdict(row), "holds": row.holds} for row in rows]
    results.write_text(json.dumps(content, indent=2) + "\n")
    missed = sum(row.holds is False for row in rows)
    print(f"{len(rows)} rows, {missed} bars missed; written to {results}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
