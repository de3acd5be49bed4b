"""The marker `unit` of tests/conftest.py: which tests get it, and what such a test must not do."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from testbed import ROOT

TESTS = """
import socket
import subprocess

import pytest

def test_computes():
    pass

async def test_runs_an_event_loop():
    pass

def test_starts_a_process():
    subprocess.run(["true"], check=True)

def test_connects():
    with socket.socket() as client:
        client.connect_ex(("127.0.0.1", 9))

@pytest.mark.server
def test_is_marked():
    subprocess.run(["true"], check=True)

def test_requests_a_server(redis_url):
    pass

def test_requests_a_server_indirectly(prefix):
    pass
"""


def test_a_unit_test_needs_no_server(tmp_path: Path) -> None:
    for folder in ("jobgroup", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test_inner.py").write_text(TESTS)
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    pytest = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*pytest, "--rootdir", tmp_path, "-p", "no:cacheprovider", "-m", "unit", "-rA", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes = re.findall(
        r"^(PASSED|FAILED|ERROR) \S+/(\w+/test_inner\S+)", done.stdout, re.MULTILINE
    )
    assert set(outcomes) == {
        ("PASSED", "jobgroup/test_inner.py::test_computes"),
        ("PASSED", "jobgroup/test_inner.py::test_runs_an_event_loop"),
        ("FAILED", "jobgroup/test_inner.py::test_starts_a_process"),
        ("FAILED", "jobgroup/test_inner.py::test_connects"),
    }, done.stdout
    assert "mark it with @pytest.mark.server" in done.stdout
