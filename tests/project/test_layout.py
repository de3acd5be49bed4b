"""The shape of the tree that everything else relies on."""

import re
from pathlib import Path
from types import ModuleType

import pytest

import handlers
import jobgroup
from testbed.lock import NODE_LOCKS, PYTHON_LOCKS

ROOT = Path(__file__).resolve().parents[1]
LOCKS = [
    *(ROOT / name for name in PYTHON_LOCKS),
    *(folder / "package-lock.json" for folder in NODE_LOCKS),
]


def entries(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != "__pycache__"}


def test_operator_is_a_source_root_and_never_a_package() -> None:
    # An __init__.py here would shadow the standard library's operator module, and any other
    # top-level module could shadow another of its modules.
    assert entries(ROOT / "operator") == {"main.py", "handlers", "jobgroup", "lua"}


@pytest.mark.parametrize("package", [handlers, jobgroup])
def test_each_module_has_its_line(package: ModuleType) -> None:
    modules = (ROOT / "operator" / package.__name__).glob("*.py")
    listed = re.findall(r"^(\w+) [ (]", str(package.__doc__), re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in modules if path.stem != "__init__")


def test_lua_holds_only_lua() -> None:
    strangers = [
        p for p in (ROOT / "operator/lua").rglob("*") if p.is_file() and p.suffix != ".lua"
    ]
    assert strangers == []


def test_tests_are_not_packages() -> None:
    # tests/jobgroup/__init__.py would replace the real jobgroup package while testing.
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_every_test_folder_mirrors_a_source_folder() -> None:
    mirrored = entries(ROOT / "operator") | {"deploy", "testbed"}
    own = {"e2e", "sagas"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= mirrored | own


def test_lock_files_name_no_host() -> None:
    assert [lock for lock in LOCKS if "://" in lock.read_text()] == []


def test_every_lock_file_is_written_by_make_lock() -> None:
    assert {f"locks/{name}" for name in entries(ROOT / "locks")} <= set(PYTHON_LOCKS)


def test_python_locks_pin_everything_by_hash() -> None:
    for lock in [ROOT / name for name in PYTHON_LOCKS]:
        pins = [line for line in lock.read_text().splitlines() if line[:1].isalnum()]
        assert pins
        assert [pin for pin in pins if "==" not in pin or not pin.endswith("\\")] == []
