"""The Makefile: what it lists, what it prints when it cannot go on, and that it leaves nothing."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from testbed import ROOT
from testbed.servers.processes import is_running
from testbed.support.waiting import wait_for


def make(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_make_without_a_target_lists_every_target_in_one_line() -> None:
    targets = re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    listed = re.findall(r"^  make (\S+) +\S", make().stdout, re.MULTILINE)
    assert listed == targets
    assert {"install", "lint", "unit", "test", "histories", "e2e", "verify"} <= set(listed)


def test_ci_runs_the_tiers_of_verify_in_their_order() -> None:
    (tiers,) = re.findall(r"^verify: (.+?) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    steps = re.findall(r"step make (\S+)", (ROOT / ".ci/run").read_text())
    # The matrix before the clusters, because it omits what `make test` has run.
    expected = ["install", *tiers.split(), "demo-kind"]
    expected.insert(expected.index("e2e"), "redis-matrix")
    assert steps == expected


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("exit 1", "Python 3.11 or newer is needed"),
        ('case "$2" in *ensurepip*) exit 1;; esac', "apt-get install python3-venv"),
    ],
)
def test_install_explains_in_a_sentence_why_a_python_does_not_suffice(
    tmp_path: Path, script: str, sentence: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    done = make("install", f"PYTHON={python}", f"VENV={tmp_path}/venv")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not (tmp_path / "venv").exists()


def test_install_explains_in_a_sentence_that_pip_reaches_no_index_and_is_not_complete(
    tmp_path: Path,
) -> None:
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_NO_CACHE_DIR": "1"}
    done = make("install", f"VENV={tmp_path}/venv", **offline)
    assert done.returncode == 2
    assert "check that this machine reaches a package index" in done.stderr
    assert not (tmp_path / "venv" / ".installed").exists()


def test_install_does_not_empty_the_folder_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/kept").touch()
    (tmp_path / "venv").symlink_to(tmp_path / "theirs")
    done = make("install", f"VENV={tmp_path}/venv")
    assert done.returncode == 2
    assert "is a link" in done.stderr
    assert (tmp_path / "theirs/kept").exists()


def test_nothing_outlives_a_killed_make(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    inner = tmp_path / "test_inner.py"
    inner.write_text(f"""
import os, pathlib, time
async def test_hangs(redis):
    note = pathlib.Path({str(note)!r})
    pids = f"{{os.getpid()}} {{(await redis.info())['process_id']}}"
    note.with_suffix(".part").write_text(pids)
    note.with_suffix(".part").rename(note)
    time.sleep(600)
""")
    # -o lint: omit the prerequisite, because this is about the last step.
    arguments = f"-c pyproject.toml -p testbed.support.fixtures {inner}"
    command = ["make", "-o", "lint", "test", f"ARGS={arguments}"]
    env = {key: value for key, value in os.environ.items() if key != "REDIS_URL"}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL) as run:
        try:
            wait_for(note.exists)
            pids = [int(pid) for pid in note.read_text().split()]
            assert all(is_running(pid) for pid in pids)
        finally:
            run.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(is_running(pid) for pid in pids))
