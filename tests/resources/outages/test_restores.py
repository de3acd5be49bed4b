"""A Redis restored from a backup, and what becomes of groups made since: see docs/operations.md."""

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jobgroup import keys
from testbed.apiserver import ApiServer
from testbed.resources import manifest
from testbed.stages import PREFIX, WAIT, Stage

OPERATIONS = Path(__file__).resolve().parents[2] / "docs/operations.md"


NAMES = ("before", "since", "untold")


@pytest.fixture
async def restored(quiet_api: ApiServer, tmp_path: Path) -> AsyncIterator[Stage]:
    """Run a group from before a backup, one from after it and one of which no status tells yet.

    Then restore the backup.
    """
    backup = tmp_path / "backup"
    async with Stage(tmp_path, quiet_api, persistent=True) as stage:
        with stage.operator():
            for name in ("before", "since"):
                stage.resources.apply(manifest(name, WAIT))
                stage.resources.reaches(name, state="ACTIVE")
                if name == "before":
                    stage.redis.stop()
                    replace(backup, tmp_path)
                    stage.redis.start_again()
        doomed = stage.operator("doomed", FAILPOINT="status")
        stage.resources.apply(manifest("untold", WAIT))
        assert doomed.server.wait() == -9
        stage.free_lease()
        assert groups(stage) == list(NAMES)
        stage.redis.stop()
        replace(tmp_path, backup)
        stage.redis.start_again()
        assert groups(stage) == ["before"]
        yield stage


def replace(target: Path, source: Path) -> None:
    """Replace the data of a Redis that does not run: a file, or a folder since Redis 7."""
    for path in target.glob("appendonly*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=all_but_data)


def all_but_data(folder: str, names: list[str]) -> list[str]:
    """Say which entries of a folder are not Redis' data."""
    inside = Path(folder).name.startswith("appendonly")
    return [name for name in names if not inside and not name.startswith("appendonly")]


def groups(stage: Stage) -> list[str]:
    """Return the names of the resources whose groups Redis knows."""
    uids = {name: stage.resources.get(name)["metadata"]["uid"] for name in NAMES}
    return [name for name in NAMES if stage.store.exists(keys.parent(PREFIX, uids[name]))]


async def test_what_was_made_since_a_backup_is_made_again_only_if_no_status_told_of_it(
    restored: Stage,
) -> None:
    with restored.operator():
        restored.resources.stalls("since", "RedisStateLost")
        restored.resources.reaches("untold", state="ACTIVE")
        restored.resources.condition("before", "Reconciling", "True", "Running")
        assert groups(restored) == ["before", "untold"]


async def test_what_was_made_since_a_backup_is_lost_if_redis_lost_its_name(restored: Stage) -> None:
    (name,) = re.findall(r"redis-cli .+ DEL (\S+)", OPERATIONS.read_text())
    assert restored.store.delete(name) == 1
    with restored.operator():
        restored.resources.stalls("since", "RedisStateLost")
        restored.resources.stalls("untold", "RedisStateLost")
        restored.resources.condition("before", "Reconciling", "True", "Running")
        assert groups(restored) == ["before"]
