"""The import contracts and the Lua check of `make lint` refuse what they must refuse."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from testbed import ROOT
from testbed.build.toolchain import node
from testbed.servers.stock import CLIENTS

LAYERS = "Layers of jobgroup"
HANDLERS = "Layers of handlers"
CLIENTS_OF_HANDLERS = "Only handlers import Kubernetes, HTTP and Prometheus clients"
COMPILED = shutil.ignore_patterns("__pycache__")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy the operator, so that a test can add a forbidden import."""
    shutil.copytree(ROOT / "operator", tmp_path / "operator", symlinks=True, ignore=COMPILED)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
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
    ("package", "line", "contract"),
    [
        ("jobgroup/model", "import handlers", "jobgroup does not import the operator"),
        ("jobgroup/resource", "import jobgroup.store.store", LAYERS),
        ("jobgroup/store", "import jobgroup.resource.status", LAYERS),
        ("jobgroup/model", "import jobgroup.definition.spec", LAYERS),
        ("jobgroup/definition", "import jobgroup.store.scripts", LAYERS),
        ("jobgroup/store", "import jobgroup.groups", LAYERS),
        ("jobgroup/model", "from jobgroup import JobGroups", LAYERS),
        ("jobgroup/crd", "import jobgroup.cli.verbs", LAYERS),
        ("jobgroup", "X = 1", LAYERS),
        ("handlers/kube", "import handlers.telemetry.metrics", HANDLERS),
        ("handlers/jobgroups", "import handlers.workerpools.scaler", HANDLERS),
        ("handlers/workerpools", "import handlers.startup", HANDLERS),
        ("handlers", "X = 1", HANDLERS),
        *(
            ("jobgroup/resource", f"import {name}", CLIENTS_OF_HANDLERS)
            for name in ("aiohttp", "kopf", "kubernetes", "prometheus_client")
        ),
        ("handlers/kube", "import redis", "Only jobgroup.store imports redis"),
        ("jobgroup/cli", "import redis", "Only jobgroup.store imports redis"),
        ("handlers/kube", "import main", "Nothing imports the entry point"),
        ("jobgroup/model", "import main", "Nothing imports the entry point"),
    ],
)
def test_a_forbidden_import_is_refused(
    project: Path, package: str, line: str, contract: str
) -> None:
    (project / "operator" / package / "stray.py").write_text(line + "\n")
    assert f"{contract} BROKEN" in broken_contracts(project)


def test_only_the_store_may_import_redis() -> None:
    """Exhaustive, as the layers are: import-linter cannot exclude a module from a package."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contracts = {each["name"]: each for each in linter["contracts"]}
    modules = {
        f"jobgroup.{name}" for layer in contracts[LAYERS]["layers"] for name in layer.split(" | ")
    }
    restricted = set(contracts["Only jobgroup.store imports redis"]["source_modules"])
    assert restricted == modules - {"jobgroup.store"} | {"handlers"}


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
def test_lua_that_fails_in_redis_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "bad.lua").write_text(text)
    assert complaint in lua_complaints(tmp_path)


def test_scripts_can_call_the_function_of_an_include(tmp_path: Path) -> None:
    (tmp_path / "includes").mkdir()
    (tmp_path / "includes" / "twice.lua").write_text("local function twice(n) return 2 * n end")
    (tmp_path / "verb.lua").write_text(
        "local n = tonumber(ARGV[1])\nfor _, key in ipairs(KEYS) do\n"
        "  redis.call('SET', key, twice(n))\nend\nreturn cjson.encode({ n = n })"
    )
    assert lua_complaints(tmp_path) == ""
