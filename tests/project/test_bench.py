"""The benchmark runs and prints every row; no test asserts what it measures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.driving import Ends
from bench.harness import QUICK, Sizes, chosen_sizes
from testbed import ROOT

BARS = {
    "groups created per second, over BullMQ flows",
    "groups created per second, over a bare socket",
    "groups a driver settles per second, over the worker",
    "wake-ups per successful group",
    "script calls per successful group",
    "10 jobs: created in",
    "10 jobs, all but one done: longest call",
    "10 jobs, all but one waiting, beside 1,000 others: longest call",
    "create: 200 existing groups over 100",
    "1 pool: undo added to workload scaled, median",
    "5 pools: scale writes per burst of 50",
    "5 pools at rest: writes",
    "replicas set to 0 while jobs wait: corrected after, longest of 1",
    "from a fatal error of the leader to another leader, longest of 1",
    "from silence to a new object's end, WATCH_TIMEOUT_SECONDS=5",
    "a saga beside 2 groups of 50 jobs: median, over without a flood",
    "a saga beside 2 groups of 50 jobs: longest",
    "a workload scaled beside 5 pools: median, over without a flood",
    "a workload scaled beside 5 pools: longest",
}
BARS |= {
    "  99th percentile beside 200 running and 200 ended groups",
    "  99th percentile beside 200 failed and 200 ended groups",
    "  longer than beside no other group by",
    "  calls that settle it, if it ends alone",
    "groups of 3 whose third job starts after the first failed",
}
NO_BARS = {
    "from a job's end to its group's, beside no other group: median",
    "from a job's end to its group's, beside 200 running groups: median",
    "from a job's end to its group's, beside 200 ended groups: median",
    "from a job's end to its group's, beside 200 running and 200 ended groups: median",
}


def test_the_quick_benchmark_prints_and_writes_every_row(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", str(results)],
        cwd=ROOT,
        env={**os.environ, "BENCH_QUICK": "1", "PYTHONPATH": "operator:."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(results.read_text())
    assert {row["what"] for row in rows if row["holds"] is not None} >= BARS
    assert {row["what"] for row in rows} >= NO_BARS
    assert [row["what"] for row in rows if f"{row['what']} " not in done.stdout] == []


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
