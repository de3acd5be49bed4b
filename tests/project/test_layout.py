"""The layout of the tree: source root, packages, mirrored tests and lock files."""

import ast
import re
from pathlib import Path

import pytest

from testbed import ROOT
from testbed.build.lock import NODE_LOCKS, PYTHON_LOCKS

LOCKS = [
    *(ROOT / name for name in PYTHON_LOCKS),
    *(folder / "package-lock.json" for folder in NODE_LOCKS),
]


def entries(folder: Path) -> set[str]:
    """Return the entries of a folder without those that Python and pip create."""
    return {
        path.name
        for path in folder.iterdir()
        if path.name != "__pycache__" and path.suffix != ".egg-info"
    }


def test_operator_is_a_source_root_and_never_a_package() -> None:
    # An __init__.py here would shadow the module operator of the standard library, and another
    # top-level module could shadow another one of its modules.
    assert entries(ROOT / "operator") == {"main.py", "handlers", "jobgroup", "lua"}


PACKAGES = sorted(
    path.parent.relative_to(ROOT)
    for tree in ("operator", "testbed")
    for path in (ROOT / tree).rglob("__init__.py")
)
# Folders of a package that contain no Python package.
DATA = {"lua", "go", "go-helm", "go-promql", "node_image", "workers"}


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_the_docstring_of_a_package_lists_its_modules(package: Path) -> None:
    folder = ROOT / package
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    listed = re.findall(r"^(\w+) {2,}\S", docstring, re.MULTILINE)
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert set(listed) - DATA == modules | packages
    assert len(listed) == len(set(listed))


def test_the_lua_folder_contains_only_lua() -> None:
    strangers = [
        p for p in (ROOT / "operator/lua").rglob("*") if p.is_file() and p.suffix != ".lua"
    ]
    assert strangers == []


def test_tests_are_not_packages() -> None:
    # tests/jobgroup/__init__.py would replace the real jobgroup package while testing.
    assert list((ROOT / "tests").rglob("__init__.py")) == []


SCENARIOS = {"sagas", "resources", "e2e", "project"}


def test_every_test_folder_mirrors_a_source_folder_or_holds_scenarios() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == {"deploy", "handlers", "jobgroup", "lua", "testbed"} | SCENARIOS


MIRRORS = {
    "handlers": ROOT / "operator/handlers",
    "jobgroup": ROOT / "operator/jobgroup",
    "lua": ROOT / "operator/lua",
    "testbed": ROOT / "testbed",
}
# Test files of a mirror that are not named after a module, and what they are about instead.
OTHER_SUBJECTS = {
    "handlers/telemetry/test_alerts.py": "alert rules of the chart, on the metrics of an operator",
    "handlers/telemetry/test_dashboard.py": "dashboard of the chart, on the metrics of an operator",
    "handlers/test_backoff.py": "the loops of the operator that read from Redis, after an outage",
    "handlers/test_settings_refused.py": "the operator's process with settings it refuses",
    "jobgroup/cli/test_jobs.py": "the verbs that find failed groups and show why they failed",
    "jobgroup/cli/test_prune.py": "the verb that removes old groups",
    "jobgroup/cli/test_tls.py": "the command line with a Redis that requires TLS",
    "jobgroup/store/test_failover.py": "connections while another Redis takes over",
    "testbed/demo/test_demo.py": "make demo",
}


def test_a_test_file_of_a_mirror_is_named_after_its_module() -> None:
    unnamed = set()
    for tree, source in MIRRORS.items():
        mirror = ROOT / "tests" / tree
        for path in mirror.rglob("test_*.py"):
            name = path.stem.removeprefix("test_")
            beside = source / path.parent.relative_to(mirror)
            places = (
                beside / f"{name}.py",
                beside / f"{name}.lua",
                beside / f"includes/{name}.lua",
            )
            if not any(place.exists() for place in places):
                unnamed.add(str(path.relative_to(ROOT / "tests")))
    assert unnamed == OTHER_SUBJECTS.keys()


@pytest.mark.parametrize("tree", ["handlers", "jobgroup", "testbed"])
def test_the_folders_of_a_mirror_are_packages_of_its_source(tree: str) -> None:
    source, mirror = MIRRORS[tree], ROOT / "tests" / tree
    folders = {path.parent.relative_to(mirror) for path in mirror.rglob("test_*.py")}
    assert [folder for folder in folders if not (source / folder / "__init__.py").exists()] == []


def criteria(text: str) -> set[int]:
    """Return the numbers of a list of acceptance criteria: "VAL-01 to 03, 18" has four."""
    listed = re.search(r"VAL-(\d\d(?:(?:, | and | to )\d\d)*)", text)
    found: set[int] = set()
    for part in re.split(r", | and ", listed[1] if listed else ""):
        first, _, last = part.partition(" to ")
        found |= set(range(int(first), int(last or first) + 1)) if first else set()
    return found


def acceptance(folder: str) -> dict[str, set[int]]:
    """Return which criteria each file of acceptance tests shows, according to its docstring."""
    files = sorted((ROOT / "tests" / folder / "acceptance").glob("test_*.py"))
    return {
        path.name: criteria(ast.get_docstring(ast.parse(path.read_text())) or "") for path in files
    }


def test_the_table_of_acceptance_criteria_is_right() -> None:
    text = (ROOT / "tests/README.md").read_text()
    rows = re.findall(r"^\| (VAL[^|]+) \|[^|]+\| `(\w+\.py)` \|$", text, re.MULTILINE)
    assert {name: criteria(listed) for listed, name in rows} == acceptance("sagas")
    assert set().union(*acceptance("sagas").values()) == set(range(1, 22))
    assert set().union(*acceptance("resources").values()) == set(range(1, 22)) - {14, 21}


def test_lock_files_name_no_host() -> None:
    assert [lock for lock in LOCKS if "://" in lock.read_text()] == []


def test_every_lock_file_is_written_by_make_lock() -> None:
    assert {f"locks/{name}" for name in entries(ROOT / "locks")} <= set(PYTHON_LOCKS)


def test_python_locks_pin_everything_by_hash() -> None:
    for lock in [ROOT / name for name in PYTHON_LOCKS]:
        pins = [line for line in lock.read_text().splitlines() if line[:1].isalnum()]
        assert pins
        assert [pin for pin in pins if "==" not in pin or not pin.endswith("\\")] == []
