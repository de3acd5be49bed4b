"""The benchmark runs and prints every row; no test asserts what it measures."""

import json
import os
import subprocess
import sys
from pathlib import Path

from testbed import ROOT

BARS = {
    "groups created per second, over BullMQ flows",
    "groups created per second, over a bare socket",
    "groups a driver settles per second, over the worker",
    "wake-ups a successful group",
    "script calls a successful group",
    "10 jobs: created in",
    "10 jobs, all but one done: longest call",
    "10 jobs, all but one waiting, beside 1,000 others: longest call",
    "create: 200 groups there over 100",
    "1 pool: undo added to workload scaled, median",
    "5 pools: scale writes a burst of 50",
    "5 pools at rest: writes",
    "a saga beside 2 groups of 50 jobs: median, over without",
    "a saga beside 2 groups of 50 jobs: longest",
    "a workload scaled beside 5 pools: median, over without",
    "a workload scaled beside 5 pools: longest",
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
    assert [row["what"] for row in rows if f"{row['what']} " not in done.stdout] == []
