"""The checks of `make lint` that hold the architecture: each is seen to refuse what it must."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from testbed.stock import CLIENTS
from testbed.toolchain import node

ROOT = Path(__file__).resolve().parents[1]
COMPILED = shutil.ignore_patterns("__pycache__")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a copy of the operator that a test may spoil."""
    shutil.copytree(ROOT / "operator", tmp_path / "operator", ignore=COMPILED)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def broken_contracts(project: Path) -> str:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": "operator"},
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout


def test_the_tree_keeps_its_contracts(project: Path) -> None:
    assert broken_contracts(project) == ""


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("jobgroup", "import handlers", "The core knows nothing of its callers"),
        ("jobgroup", "import kopf", "Only handlers speak to Kubernetes"),
        ("jobgroup", "import kubernetes", "Only handlers speak to Kubernetes"),
        ("handlers", "import redis", "Only the core speaks to Redis"),
        ("jobgroup", "import prometheus_client", "Only handlers know Prometheus"),
        ("handlers", "import main", "Nobody imports the entry point"),
    ],
)
def test_an_import_against_the_arrow_is_refused(
    project: Path, module: str, line: str, contract: str
) -> None:
    (project / "operator" / module / "spoiled.py").write_text(line + "\n")
    assert f"{contract} BROKEN" in broken_contracts(project)


def lua_complaints(folder: Path) -> str:
    done = subprocess.run(
        [node(), CLIENTS / "lua_check.mjs", folder], capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("return (", "<expression> expected"),
        ("goto done ::done::", "expected"),  # Lua 5.2, which Redis does not run
        ("return os.time()", "unknown global 'os'"),
        ("total = 1", "assignment to the global 'total'"),
        ("local unread = 1", "'unread' is never read"),
        ("local function lost() end", "'lost' is never read"),
        ("for i, v in ipairs(KEYS) do redis.call('DEL', v) end", "'i' is never read"),
        ("local f = function(a, b) return a end return f(1)", "'b' is never read"),
        ("local a = 1; a = 2", "'a' is never read"),
        ("local size = 1; return redis.size", "'size' is never read"),
    ],
)
def test_lua_that_redis_would_trip_over_is_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "bad.lua").write_text(text)
    assert complaint in lua_complaints(tmp_path)


def test_an_includes_function_is_known_to_the_scripts(tmp_path: Path) -> None:
    (tmp_path / "includes").mkdir()
    (tmp_path / "includes" / "twice.lua").write_text("local function twice(n) return 2 * n end")
    (tmp_path / "verb.lua").write_text(
        "local n = tonumber(ARGV[1])\nfor _, key in ipairs(KEYS) do\n"
        "  redis.call('SET', key, twice(n))\nend\nreturn cjson.encode({ n = n })"
    )
    assert lua_complaints(tmp_path) == ""


def test_the_wheel_holds_the_operator_and_nothing_else(project: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    pip += ["--no-index", "--wheel-dir", str(project / "dist"), str(project)]
    subprocess.run(pip, check=True)
    (wheel,) = (project / "dist").iterdir()
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = project / "operator"
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert packed == {name for name in files if ".egg-info/" not in name}
