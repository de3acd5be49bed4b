"""A Redis restored from a backup, and groups created since: see docs/operations.md."""

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jobgroup.model import names
from testbed import ROOT
from testbed.servers.apiserver import ApiServer
from testbed.support.resources import manifest
from testbed.support.stages import PREFIX, WAIT, Stage
from testbed.support.waiting import wait_for

OPERATIONS = ROOT / "docs/operations.md"


NAMES = ("before", "since", "untold")


@pytest.fixture
async def restored(quiet_api: ApiServer, tmp_path: Path) -> AsyncIterator[Stage]:
    """Run a group from before a backup, one from after it, and one that no status reports yet.

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
            # Otherwise the next operator would begin with the status of this object.
            wait_for(lambda: "RedisUnavailable" not in reasons(stage, "before"))
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


def reasons(stage: Stage, name: str) -> set[str]:
    """Return the reasons of the conditions of an object."""
    return {each["reason"] for each in stage.resources.status(name)["conditions"]}


def replace(target: Path, source: Path) -> None:
    """Replace the data of a Redis that does not run: a file, or a folder since Redis 7."""
    for path in target.glob("appendonly*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=all_but_data)


def all_but_data(folder: str, names: list[str]) -> list[str]:
    """Return the entries of a folder that are not data of Redis."""
    inside = Path(folder).name.startswith("appendonly")
    return [name for name in names if not inside and not name.startswith("appendonly")]


def groups(stage: Stage) -> list[str]:
    """Return the names of the objects whose groups are in Redis."""
    uids = {name: stage.resources.get(name)["metadata"]["uid"] for name in NAMES}
    return [name for name in NAMES if stage.store.exists(names.parent_key(PREFIX, uids[name]))]


async def test_a_group_created_since_a_backup_is_created_again_if_no_status_reports_it(
    restored: Stage,
) -> None:
    with restored.operator():
        restored.resources.stalls("since", "RedisStateLost")
        restored.resources.reaches("untold", state="ACTIVE")
        restored.resources.condition("before", "Reconciling", "True", "Running")
        assert groups(restored) == ["before", "untold"]


async def test_a_group_created_since_a_backup_is_lost_if_redis_has_a_new_incarnation(
    restored: Stage,
) -> None:
    (name,) = re.findall(r"redis-cli .+ DEL (\S+)", OPERATIONS.read_text())
    assert restored.store.delete(name) == 1
    with restored.operator():
        restored.resources.stalls("since", "RedisStateLost")
        restored.resources.stalls("untold", "RedisStateLost")
        restored.resources.condition("before", "Reconciling", "True", "Running")
        assert groups(restored) == ["before"]
