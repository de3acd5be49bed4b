"""Results of a run in a file: what was measured, on which machine, of which commit."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from bench.rows import Row, by_margin
from testbed import ROOT
from testbed.build.binaries import KUBERNETES_VERSION
from testbed.build.toolchain import node
from testbed.servers.redis import find_redis

# Ignored by git.
FOLDER = Path(__file__).with_name("results")
FORMAT = 1


@dataclass
class Part:
    """How a part of the benchmarks went."""

    name: str
    seconds: float
    load_before: float
    load_after: float
    error: str = ""


@dataclass
class Results:
    """Everything that a run has measured so far."""

    date: str
    commit: str
    sizes: dict[str, Any]
    machine: dict[str, Any]
    parts: list[Part] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def begin(cls, sizes: dict[str, Any]) -> Self:
        """Return the results of a run that begins now."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(date, commit(), plain(sizes), machine())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read results from a file."""
        text = json.loads(path.read_text())
        parts = [Part(**part) for part in text["parts"]]
        rows = [Row.from_json(row) for row in text["rows"]]
        return cls(text["date"], text["commit"], text["sizes"], text["machine"], parts, rows)

    def write(self, path: Path) -> None:
        """Write the results to a file: the summary first."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shown = ("id", "value", "unit", "bar", "margin", "holds")
        summary = [row.to_json() | {"unit": row.of.unit} for row in by_margin(self.rows)]
        content = {
            "summary": [{name: row[name] for name in shown} for row in summary],
            "format": FORMAT,
            "date": self.date,
            "commit": self.commit,
            "machine": self.machine,
            "sizes": self.sizes,
            "parts": [asdict(part) for part in self.parts],
            "rows": [row.to_json() for row in self.rows],
        }
        path.write_text(json.dumps(content, indent=2) + "\n")

    @property
    def name(self) -> str:
        """Return the name of the file in which these results are kept."""
        return re.sub(r"[^0-9T]", "", self.date.partition("+")[0]) + ".json"


def plain(sizes: dict[str, Any]) -> dict[str, Any]:
    """Return sizes as a file has them, in which there are no tuples."""
    read: dict[str, Any] = json.loads(json.dumps(sizes))
    return read


def kept(folder: Path) -> list[Path]:
    """Return the files of the results that are kept, oldest first."""
    return sorted(folder.glob("*.json"))


def machine() -> dict[str, Any]:
    """Return the facts of the machine on which the numbers depend."""
    package = ROOT / "testbed/workers/node_modules/bullmq6/package.json"
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": model[1] if model else "",
        "redis": version_of(find_redis()),
        "node": version_of(node()),
        "bullmq": json.loads(package.read_text())["version"],
        "python": sys.version.partition(" ")[0],
        "kubernetes": KUBERNETES_VERSION,
    }


def version_of(program: Path) -> str:
    """Return the version that a program prints."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"\d+\.\d+\.\d+", said.stdout)
    return found[0] if found else ""


def commit() -> str:
    """Return the commit that is checked out, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def loads(parts: Sequence[Part]) -> str:
    """Return the load averages during a run, as text."""
    seen = [load for part in parts for load in (part.load_before, part.load_after)]
    return f"load average {min(seen):.1f} to {max(seen):.1f}" if seen else "nothing measured"
