"""What `make redis-matrix` runs: the tests of sagas on each kind of Redis, one after the other.

The core suite is all tests of sagas, scripts, Python API and command line that run on the Redis of
REDIS_KIND. Environment variables:

KINDS       the kinds to run, such as cluster,redis-8.0
CI          if set, what CI runs: the core suite on some kinds, the acceptance tests on the others,
            and killed masters; it omits what `make test` runs, and repeats the same histories
ARGS        arguments of pytest instead of those that run tests in parallel
HISTORIES   the number of random histories on each kind
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed import ROOT
from testbed.servers.processes import leashed
from testbed.servers.redis import WHEEL, find_redis
from testbed.servers.redis_kinds import ACL, CHOICE, SINGLE, TLS, is_known, plain
from testbed.support.errors import Unavailable

# Each kind once, one with TLS, two with exactly the rights that the docs list.
MATRIX = (
    *("redis-6.2", "redis-7.0", f"redis-8.0{ACL}"),
    *(f"valkey-8.1{TLS}", f"sentinel{ACL}", "cluster"),
)
ACCEPTANCE = ("tests/sagas/acceptance",)
CORE = (
    *ACCEPTANCE,
    "tests/sagas/rules",
    "tests/sagas/interference",
    "tests/sagas/histories/test_histories.py",
    "tests/lua",
    "tests/jobgroup/cli",
    *(f"tests/jobgroup/test_{name}.py" for name in ("driver", "errors", "groups", "resync")),
)
CI_CORE = ("redis-6.2", "redis-8.0", "cluster")
CI_KILLS = ("sentinel", "cluster")
KILLS = 3
HISTORIES = "60"
PARALLEL = "-n 2 --dist worksteal"
# With new histories, CI would judge more than the change.
REPEATS = "--hypothesis-seed=1"


@dataclass(frozen=True)
class Row:
    """Tests on a kind of Redis, or the reason why they are omitted."""

    kind: str
    suite: str
    tests: Sequence[str] = ()
    # These print figures, so nothing may run beside them.
    alone: bool = False
    omitted: str = ""


@dataclass(frozen=True)
class Result:
    """How the tests of a row ended."""

    row: Row
    outcome: str
    seconds: float
    passed: bool = True

    def __str__(self) -> str:
        took = "" if self.row.omitted else f"{self.seconds:5.0f} s"
        return f"{self.row.kind:14} {self.row.suite:17} {took:8} {self.outcome}".rstrip()


def chosen_rows(env: Mapping[str, str]) -> list[Row]:
    """Return what to run; raise Unavailable for an unknown kind."""
    named = [kind for kind in re.split(r"[,\s]+", env.get("KINDS", "")) if kind]
    if strangers := sorted(kind for kind in named if not is_known(kind)):
        raise Unavailable(f"KINDS has {', '.join(strangers)}; use some of {CHOICE}")
    kinds = named or MATRIX
    if not env.get("CI"):
        return [Row(kind, "core suite", CORE) for kind in kinds]
    rows = [_ci_row(kind) for kind in kinds]
    wanted = {plain(kind) for kind in kinds}
    for kind in CI_KILLS:
        if kind in wanted:
            tests = ("tests/sagas/failover", "-k", f"killed and {kind}")
            rows.append(Row(kind, f"{KILLS} killed masters", tests, alone=True))
    return rows


def _ci_row(kind: str) -> Row:
    if plain(kind) not in CI_CORE:
        return Row(kind, "acceptance tests", ACCEPTANCE)
    if kind == f"redis-{WHEEL}" and _default_version() == WHEEL:
        return Row(kind, "core suite", omitted="make test has run it")
    return Row(kind, "core suite", CORE)


def _default_version() -> str:
    """Return the version of the Redis that `make test` uses."""
    if os.environ.get("REDIS_URL"):
        return ""
    command = [str(find_redis()), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=(\d+\.\d+)", said)
    return found[1] if found else ""


def run(row: Row) -> Result:
    """Run the tests of a row; print what pytest printed if one fails, or if that has figures."""
    if row.omitted:
        return Result(row, f"omitted: {row.omitted}", 0)
    args = ["-s"] if row.alone else (os.environ.get("ARGS") or PARALLEL).split()
    args += [REPEATS] if os.environ.get("CI") else []
    command = [sys.executable, "-m", "pytest", "--quiet", "--tb=short", *row.tests, *args]
    started = time.monotonic()
    done = subprocess.run(
        leashed(command),
        cwd=ROOT,
        env=environment(row.kind),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode or row.alone:
        print(done.stdout, flush=True)
    last = done.stdout.strip().rpartition("\n")[2]
    outcome = re.sub(r" in [\d.]+s.*|=+ ?", "", last)
    return Result(row, outcome, time.monotonic() - started, done.returncode == 0)


def environment(kind: str) -> dict[str, str]:
    """Return the environment of the tests; servers of their own have the same version."""
    env = {"HISTORIES": HISTORIES, "KILLS": str(KILLS), **os.environ, "REDIS_KIND": kind}
    env.pop("REDIS_URL", None)
    if version := SINGLE.get(plain(kind)):
        env["PATH"] = f"{find_redis(version).parent}{os.pathsep}{env['PATH']}"
    return env


def main() -> int:
    """Run all rows, print each result and then all of them; return 1 if a test failed."""
    try:
        rows = chosen_rows(os.environ)
        results = []
        for row in rows:
            results.append(run(row))
            print(results[-1], flush=True)
    except Unavailable as refusal:
        print(f"make redis-matrix: {refusal}", file=sys.stderr)
        return 2
    print("\nSummary", *results, sep="\n")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
