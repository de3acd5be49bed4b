"""Run the benchmarks: `make bench`, or `python -m bench [results.json]`.

ROWS names the parts to run, separated by commas; ROWS=help lists them. The summary is what a run
prints first; with ROWS, all rows of the parts follow. A missed bar is not an error, because the
machine may have been busy.
"""

import asyncio
import os
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from bench.harness import Bench
from bench.parts import Measurement, choose, list_parts
from bench.report import details, summary
from bench.results import FOLDER, Part, Results
from bench.sizes import chosen_sizes


def say(*lines: str) -> None:
    """Print lines at once, also into a pipe."""
    print("\n".join(lines), flush=True)


async def run(parts: Mapping[str, Measurement], path: Path | None) -> tuple[Results, Path]:
    """Run these parts; write the results after each, so that an end of the run loses none."""
    results = Results.begin(asdict(chosen_sizes(os.environ)))
    path = path or FOLDER / results.name
    for number, (name, measure) in enumerate(parts.items(), start=1):
        load, start, error = os.getloadavg()[0], time.perf_counter(), ""
        say(f"[{number}/{len(parts)}] {name}: running, load average {load:.1f}")
        try:
            async with Bench.start() as bench:
                rows = await measure(bench)
        except Exception as failure:
            traceback.print_exc()
            rows, error = [], repr(failure)
        seconds = time.perf_counter() - start
        results.parts.append(Part(name, seconds, load, os.getloadavg()[0], error))
        results.rows += rows
        results.write(path)
        say(f"[{number}/{len(parts)}] {name}: {len(rows)} rows in {seconds:.0f} s")
    return results, path


def main(arguments: list[str], names: str) -> int:
    """Run the parts with these names; print the summary, and return the exit code."""
    if names == "help":
        say("Parts of make bench, for ROWS=, several separated by commas:", *list_parts())
        return 0
    try:
        parts = choose(names)
    except KeyError as unknown:
        say(f"make bench: ROWS names no part: {unknown.args[0]}. The parts are:", *list_parts())
        return 2
    results, path = asyncio.run(run(parts, Path(arguments[0]) if arguments else None))
    say("", *summary(results))
    if names:
        say("", "All rows of these parts:", *details(results.rows))
    say(f"Written to {path}, with all {len(results.rows)} rows")
    return 1 if any(part.error for part in results.parts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ.get("ROWS", "")))
