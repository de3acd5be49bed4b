"""The benchmark measures every row; no test asserts what it measures."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.catalogue import CATALOGUE, Measure
from bench.compare import choose, compare
from bench.document import PAGE, documented, fill_in
from bench.driving import Ends
from bench.parts import PARTS
from bench.report import summary
from bench.results import Part, Results
from bench.rows import Row, by_margin, changed, row
from bench.sizes import QUICK, Sizes, chosen_sizes
from testbed import ROOT


def bench(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, "BENCH_QUICK": "1", "PYTHONPATH": "operator:.", **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("part", PARTS)
def test_a_quick_part_measures_its_rows_of_the_catalogue(tmp_path: Path, part: str) -> None:
    path = tmp_path / "results.json"
    done = bench("bench", str(path), ROWS=part)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads(path.read_text())
    expected = {name for name in CATALOGUE if name.startswith(f"{part}.")}
    assert {each["measure"] for each in written["rows"]} == expected
    assert len({each["id"] for each in written["rows"]}) == len(written["rows"])
    # The summary is first; the rows of the parts that ROWS names follow.
    assert next(iter(written)) == "summary"
    last, _, details = done.stdout.partition("Summary of")[2].partition("All rows")
    assert [each["id"] for each in written["rows"] if f"  {each['id']} " not in details] == []
    with_bar = [each["id"] for each in written["rows"] if each["holds"] is not None]
    assert sorted(each["id"] for each in written["summary"]) == sorted(with_bar)
    assert [each for each in with_bar if f" {each} " not in last] == []


def test_every_line_of_the_catalogue_belongs_to_a_part() -> None:
    assert {name.partition(".")[0] for name in CATALOGUE} == set(PARTS)


def test_rows_selects_parts_and_names_them(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    done = bench("bench", str(path), ROWS="memory, failing")
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads(path.read_text())
    assert [part["name"] for part in written["parts"]] == ["memory", "failing"]
    assert {"redis", "node", "bullmq", "python", "cores"} <= {*written["machine"]}
    listed = bench("bench", ROWS="help")
    assert listed.returncode == 0
    assert [name for name in PARTS if f"  {name} " not in listed.stdout] == []
    wrong = bench("bench", ROWS="memory,memry")
    assert wrong.returncode == 2
    assert "ROWS names no part: memry" in wrong.stdout
    assert listed.stdout.splitlines()[1:] == wrong.stdout.splitlines()[1:]


def made(name: str, value: float, low: float = 0, high: float = 0, **of: Any) -> Row:
    """Return a row of a measure that is not in the catalogue."""
    rounds = 3 if high else 1
    return Row(name, "", Measure(name, **of), value, low or value, high or value, rounds)


def results(*rows: Row, **changes: Any) -> Results:
    part = Part("made", 1.0, 0.5, 2.5)
    base = Results("2026-01-01T10:00:00+00:00", "abc", {"rounds": 1}, {"cores": 2}, [part], [*rows])
    return replace(base, **changes)


def test_the_summary_shows_missed_bars_first_and_again_at_the_end() -> None:
    rows = [
        made("near", 9, at_most=10),
        made("nowhere", 5),
        made("count", 1, at_most=1, exact=True),
        made("bytes", 8, at_most=10, exact=True),
        made("far", 9, at_least=1),
        made("miss", 3, at_most=2),
        made("zero", 1, at_most=0, exact=True),
    ]
    names = ["zero", "miss", "near", "bytes", "far", "count"]
    assert [each.measure for each in by_margin(rows)] == names
    lines = summary(results(*rows))
    bars = [line.split() for line in lines if line[:8] in ("MISSED  ", " " * 8)]
    assert [words[1] if words[0] == "MISSED" else words[0] for words in bars[1:]] == names
    assert lines[-1] == "4 of 6 bars hold; MISSED: zero (1 x), miss (3 x)"
    assert "load average 0.5 to 2.5" in lines[0]


def test_the_summary_names_a_part_that_failed() -> None:
    part = Part("memory", 1.0, 0.5, 2.5, "ValueError('no')")
    assert "FAILED: part memory: ValueError('no')" in summary(results(parts=[part]))


def test_a_row_is_the_median_of_its_rounds_with_their_spread() -> None:
    few = row("settling.delay", [3.0, 1.0, 2.0])
    assert (few.value, few.low, few.high, few.rounds) == (2, 1, 3, 3)
    many = row("settling.delay", [1.0, 2.0, 3.0, 4.0, 50.0], "of five")
    assert (many.id, many.value, many.low, many.high) == ("settling.delay[of five]", 3, 2, 4)
    fastest = row("settling.delay", [1.0, 2.0, 3.0, 4.0, 50.0], pick=min)
    assert (fastest.value, fastest.low, fastest.high) == (1, 1, 4)
    with pytest.raises(AssertionError, match=r"not in bench/catalogue\.py"):
        row("settling.dely", 1)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (made("rounds", 10, 8, 12), made("rounds", 14, 12, 16), False),
        (made("rounds", 10, 8, 12), made("rounds", 14, 13, 16), True),
        (made("rounds", 10, 8, 12), made("rounds", 7, 6, 7.9), True),
        (made("once", 10), made("once", 11.9), False),
        (made("once", 10), made("once", 12.1), True),
        (made("exact", 10, exact=True), made("exact", 10.1, exact=True), True),
        (made("exact", 10, exact=True), made("exact", 10.04, exact=True), False),
        (made("exact", 10, exact=True), made("exact", 10, exact=True), False),
    ],
)
def test_a_row_changed_if_it_left_its_spread(old: Row, new: Row, expected: bool) -> None:
    assert changed(old, new) is expected


def test_a_comparison_shows_what_changed_with_its_ratio_and_what_else_differs() -> None:
    old = results(made("slower", 10, at_most=12), made("same", 1), made("gone", 1))
    rows = [made("slower", 15, at_most=12), made("same", 1), made("added", 1)]
    lines = compare(old, results(*rows, commit="def"))
    assert "1 of 2 rows changed by more than their spread" in lines
    (line,) = [line for line in lines if "slower" in line]
    assert " ".join(line.split()) == "slower 10 x -> 15 x 1.50 x worse, now MISSED"
    assert "commit: abc -> def" in lines
    assert lines[-2:] == ["only in old: 1 rows of gone", "only in new: 1 rows of added"]


def test_the_newest_results_are_compared_with_the_last_of_the_same_rows_and_sizes(
    tmp_path: Path,
) -> None:
    one, other = made("one", 1), made("other", 1)
    runs = [
        results(one, other),
        results(one),
        results(other),
        results(one, sizes={"rounds": 7}),
        results(one),
    ]
    paths = [tmp_path / f"{number}.json" for number in range(len(runs))]
    for path, run in zip(paths, runs, strict=True):
        run.write(path)
    assert Results.read(paths[0]) == runs[0]
    assert choose(paths) == (paths[1], paths[4])
    assert choose(paths[:4]) is None
    assert choose([]) is None


def test_bench_compare_compares_two_files_and_says_what_is_missing(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("old.json", "new.json")]
    for path in paths:
        results(made("one", 1)).write(Path(path))
    done = bench("bench.compare", *paths)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 of 1 rows changed" in done.stdout
    assert "give both" in bench("bench.compare", paths[0]).stderr
    assert "nothing.json does not exist" in bench("bench.compare", paths[0], "nothing.json").stderr


def test_the_page_of_numbers_has_every_bar_and_names_existing_rows() -> None:
    """After a change of the catalogue, add lines to docs/performance.md for new rows, and run
    `PYTHONPATH=operator:. .venv/bin/python -m bench.document`, which writes the bars.
    """
    lines = documented(PAGE.read_text())
    bars = {name.partition("[")[0]: bar for name, bar in lines}
    assert sorted(bars.keys() - CATALOGUE.keys()) == []
    with_bar = {name for name, measure in CATALOGUE.items() if measure.bar}
    assert sorted(with_bar - bars.keys()) == []
    assert [name for name, bar in lines if bar != CATALOGUE[name.partition("[")[0]].bar] == []


def test_every_line_of_a_table_of_rows_on_the_page_names_its_row() -> None:
    tables = re.findall(r"^\| what \|.*\n\|[- |]+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    assert len(lines) > 50
    assert [line for line in lines if len(documented(line)) != 1] == []


def test_measured_values_are_written_into_the_page() -> None:
    page = (
        "| a | - | | `x.a` |\n| b | 1 x | >= 2 | `x.b` |\n| c | 1 ms | <= 2 | `settling.calls` |\n"
    )
    rows = {"x.a": made("x.a", 3, 2, 4), "x.c[2]": made("x.c[2]", 7, unit="ms", at_most=9)}
    page += "| d | 1 | | `x.c[2]` |"
    first, second, third, fourth = fill_in(page, rows).splitlines()
    assert first == "| a | 3 x (2 to 4) | | `x.a` |"
    assert second == "| b | 1 x | >= 2 | `x.b` |"
    assert third == f"| c | 1 ms | {CATALOGUE['settling.calls'].bar} | `settling.calls` |"
    assert fourth == "| d | 7 ms | | `x.c[2]` |"


@pytest.mark.parametrize(
    ("jobs", "groups", "delays", "pause"),
    [
        ([10], [15], [5], 5),
        # The second job ended after the first group had: the driver paused for 1 ms, not for 20.
        ([10, 30], [11, 31], [1, 1], 1),
        # Between the ends at 15 and at 40, the second group had to wait.
        ([10, 12, 39], [15, 40, 41], [5, 28, 2], 25),
        # The group that waits since 5 ends last.
        ([5, 10], [30, 12], [25, 2], 18),
        ([10, 10], [10, 10], [0, 0], 0),
    ],
)
def test_the_delay_and_the_longest_pause_of_a_driver(
    jobs: list[int], groups: list[int], delays: list[int], pause: int
) -> None:
    ends = Ends(dict(zip("abc", jobs, strict=False)), dict(zip("abc", groups, strict=False)))
    assert ends.delays() == delays
    assert ends.longest_pause() == pause


def test_the_environment_chooses_the_sizes() -> None:
    assert chosen_sizes({}) == Sizes()
    assert chosen_sizes({"BENCH_QUICK": "1"}) == QUICK
    chosen = chosen_sizes({"BENCH_RUNNING": "10,200", "BENCH_ENDED": "", "BENCH_FAILED": "3"})
    beside = (chosen.beside_running, chosen.beside_ended, chosen.beside_failed)
    assert beside == ((10, 200), (), (3,))
