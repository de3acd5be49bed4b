"""The histories find each bug of bugs.py, which is planted in a copy of the Lua scripts.

Slow, and therefore deselected by default: `make planted-bugs`. Only that every bug can be planted
is checked by `make unit` and `make test`.
"""

import shutil
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from jobgroup.store.scripts import FOLDER
from tests.sagas.histories.bugs import BUGS, Bug
from tests.sagas.histories.ground import ground
from tests.sagas.histories.histories import SETTINGS, run_histories


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_can_be_planted(name: str) -> None:
    bug = BUGS[name]
    assert (FOLDER / bug.file).read_text().count(bug.right) == 1, f"{bug.file}: update this bug"
    assert bug.right != bug.wrong


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_found(name: str, redis_url: str, prefix: str, tmp_path: Path) -> None:
    lua = plant(BUGS[name], tmp_path / "lua")
    find = settings(SETTINGS, max_examples=2000, phases=(Phase.generate,), print_blob=False)
    with (
        ground(redis_url, prefix, tmp_path / "kits", lua) as shared,
        pytest.raises(AssertionError),
    ):
        run_histories(shared, find)


def plant(bug: Bug, folder: Path) -> Path:
    """Copy the scripts and replace the correct text with the bug."""
    shutil.copytree(FOLDER, folder)
    script = folder / bug.file
    script.write_text(script.read_text().replace(bug.right, bug.wrong))
    return folder
