"""`make redis-matrix`: what it runs on which kind of Redis, and what it prints."""

import os
from pathlib import Path

import pytest

from testbed import ROOT, matrix
from testbed.matrix import CORE, MATRIX, Row, chosen_rows, main
from testbed.servers.redis import find_redis
from testbed.servers.redis_kinds import KINDS, plain
from testbed.support.errors import Unavailable

PASSES = """
import os

def test_kind():
    assert os.environ["REDIS_KIND"] == "redis-6.2"
    assert "REDIS_URL" not in os.environ
"""
REPEATS = """
def test_histories(request):
    assert request.config.getoption("--hypothesis-seed") == "1"
"""
SUMMARY = "redis-6.2      core suite"


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of tests in place of the core suite."""
    file = tmp_path / "test_inner.py"
    file.write_text(PASSES)
    monkeypatch.setattr(matrix, "CORE", (str(file),))
    monkeypatch.setenv("KINDS", "redis-6.2")
    monkeypatch.setenv("ARGS", "-p no:cacheprovider")
    monkeypatch.setenv("REDIS_URL", "redis://nowhere")
    monkeypatch.delenv("CI", raising=False)
    return file


def test_it_has_each_kind_once_and_some_with_tls_or_an_acl() -> None:
    assert sorted(map(plain, MATRIX)) == sorted(KINDS)
    assert [kind for kind in MATRIX if plain(kind) != kind] == [
        "redis-8.0-acl",
        "valkey-8.1-tls",
        "sentinel-acl",
    ]
    assert [row.kind for row in chosen_rows({})] == list(MATRIX)
    assert {row.tests for row in chosen_rows({})} == {CORE}


def test_the_core_suite_exists() -> None:
    assert [path for path in CORE if not (ROOT / path).exists()] == []
    beside = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/jobgroup").glob("test_*.py")}
    assert beside <= set(CORE)


def test_kinds_are_chosen_by_name() -> None:
    rows = chosen_rows({"KINDS": "cluster, redis-8.0-tls-acl"})
    assert [row.kind for row in rows] == ["cluster", "redis-8.0-tls-acl"]
    with pytest.raises(Unavailable, match=r"KINDS has dragonfly, redis-6\.2-tls; use"):
        chosen_rows({"KINDS": "dragonfly,redis-6.2-tls,cluster"})


def test_ci_runs_the_core_suite_on_some_kinds_and_kills_masters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://nowhere")  # so `make test` used another Redis
    rows = chosen_rows({"CI": "1"})
    assert [(row.kind, row.suite) for row in rows] == [
        ("redis-6.2", "core suite"),
        ("redis-7.0", "acceptance tests"),
        ("redis-8.0-acl", "core suite"),
        ("valkey-8.1-tls", "acceptance tests"),
        ("sentinel-acl", "acceptance tests"),
        ("cluster", "core suite"),
        ("sentinel", "3 killed masters"),
        ("cluster", "3 killed masters"),
    ]


def test_ci_omits_what_make_test_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("PATH", f"{find_redis('6.2').parent}{os.pathsep}{os.environ['PATH']}")
    assert chosen_rows({"CI": "1", "KINDS": "redis-6.2"}) == [
        Row("redis-6.2", "core suite", omitted="make test has run it")
    ]


def test_ci_repeats_the_same_histories(tests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests.write_text(REPEATS)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    assert main() == 1
    monkeypatch.setenv("CI", "1")
    assert main() == 0


def test_it_prints_each_result_and_a_summary(
    tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main() == 0
    line, _, heading, again = capsys.readouterr().out.splitlines()
    assert line.startswith(SUMMARY)
    assert line.endswith("1 passed")
    assert (heading, again) == ("Summary", line)


def test_it_fails_if_a_test_fails_and_prints_why(
    tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests.write_text(f"{PASSES}\ndef test_fails():\n    assert 'apples' == 'pears'\n")
    assert main() == 1
    printed = capsys.readouterr().out
    assert "'apples' == 'pears'" in printed
    assert printed.splitlines()[-1].startswith(SUMMARY)
    assert printed.splitlines()[-1].endswith("1 failed, 1 passed")


def test_an_unknown_kind_is_explained_in_a_sentence(
    tests: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KINDS", "dragonfly")
    assert main() == 2
    assert "make redis-matrix: KINDS has dragonfly" in capsys.readouterr().err
