"""The histories find each of these bugs, which are planted in a copy of the Lua scripts.

Slow, and therefore deselected by default: `make planted-bugs`.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from jobgroup.store.scripts import FOLDER
from tests.sagas.histories.ground import ground
from tests.sagas.histories.histories import SETTINGS, run_histories


@dataclass(frozen=True)
class Bug:
    """A text that occurs once in a script, and its wrong replacement."""

    file: str
    right: str
    wrong: str = ""


BUGS = {
    "a template outlives the undo it became": Bug(
        "includes/make_undos.lua", 'call_in_batches("HDEL", k.templates, members)'
    ),
    "a member is undone that was removed and never ran": Bug(
        "includes/make_undos.lua",
        ' and redis.call("HEXISTS", k.parent, "removed:" .. key) == 0',
    ),
    "a member that only started is undone though only completed ones should be": Bug(
        "includes/make_undos.lua", "if value or mapping.from_start then", "if true then"
    ),
    "undos that the budget left out are forgotten": Bug(
        "includes/make_undos.lua", "left = #templates - n + 1", "left = 0"
    ),
    "a member at work is dropped": Bug(
        "includes/drop_pending.lua", "if active_ids(seen, prefix, queue)[id] then", "if false then"
    ),
    "a start is forgotten when its member is dropped": Bug(
        "includes/drop_pending.lua", 'redis.call("HSET", k.parent, "started:" .. key, 1)'
    ),
    "a dropped member is not counted": Bug(
        "includes/drop_pending.lua",
        'redis.call("HINCRBY", k.group, "cancelledCount", #cancelled)',
    ),
    "a worker is given up at once": Bug(
        "includes/drop_pending.lua", "now - tonumber(since) >= grace", "true"
    ),
    "a worker is never given up": Bug(
        "includes/drop_pending.lua", "now - tonumber(since) >= grace", "false"
    ),
    "a removed job counts as open": Bug(
        "includes/harvest.lua",
        "if counts.open + counts.done + counts.failed < ledger.expected then",
        "if false then",
    ),
    "5.x's bulk retry is believed": Bug(
        "includes/harvest.lua",
        'if redis.call("ZSCORE", prefix .. ":" .. queue .. ":completed", id) then',
        "if false then",
    ),
    "a group ends while members are at work": Bug("includes/saga.lua", "facts.open == 0 and "),
    "a group ends before its undos do": Bug("includes/saga.lua", " and facts.undos_open == 0"),
    "a failed undo is taken for a success": Bug(
        "includes/saga.lua", 'facts.undos_failed > 0 and "undo_failed" or "undone"', '"undone"'
    ),
    "a request beats the last completion": Bug(
        "includes/saga.lua",
        "if facts.completed == facts.total then",
        "if facts.completed == facts.total and not facts.requested then",
    ),
    "an end is announced twice": Bug(
        "includes/settle.lua",
        'publish_group_event(k, "completed", gid, name)',
        'publish_group_event(k, "completed", gid, name)\n' * 2,
    ),
    "late completions are not undone": Bug(
        "includes/settle.lua",
        ' or state == "FAILED" or state == "FAILED_COMPENSATION" then',
        " then",
    ),
    "a running group is not parked": Bug(
        "includes/park.lua", 'redis.call("ZADD", k.parked, string.format("%.0f", score), gid)\n'
    ),
    "the undos of a group are not parked": Bug(
        "includes/park.lua",
        'redis.call("ZADD", k.parked, string.format("%.0f", score + above), names.undo_id(gid))',
    ),
    "a group that is undone is counted among the running": Bug(
        "includes/state_scores.lua", "COMPENSATING = 1e14", "COMPENSATING = 0"
    ),
    "the undos of a group are counted as another": Bug(
        "includes/park.lua", "score + above", "score"
    ),
    "work that is left is not put on the wake-up list": Bug(
        "includes/park.lua", "if more then", "if false then"
    ),
    "an entry stays on the wake-up list": Bug(
        "includes/park.lua",
        'if token ~= "" then redis.call("LREM", k.wakeups, 1, token) end',
    ),
    "a group that ended can be cancelled": Bug(
        "cancel_group.lua", 'before ~= "ACTIVE" or state == "COMPLETED"', "false"
    ),
    "a removed group leaves no tombstone": Bug(
        "remove_group.lua", 'redis.call("SET", k.tomb, now, "PX", remembers)'
    ),
    "a running group can be removed": Bug(
        "remove_group.lua", "if not saga.is_terminal(state) then", "if false then"
    ),
    "a removed group leaves a ghost at work": Bug(
        "remove_group.lua", 'redis.call("LREM", base .. "active", 1, id)'
    ),
    "an ended group's jobs are kept": Bug(
        "includes/apply_retention.lua",
        "remove(base, set, id)\n      elseif",
        "local _ = id\n      elseif",
    ),
    "a failed job goes as if it had completed": Bug(
        "includes/apply_retention.lua",
        'set, keep = "failed", entry.on_fail',
        'set, keep = "failed", entry.on_complete',
    ),
    "a removed group leaves its undos behind": Bug("remove_group.lua", "forget(k.undo, undos)"),
}


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
    text = script.read_text()
    assert text.count(bug.right) == 1, f"{bug.file} has changed: update this bug"
    script.write_text(text.replace(bug.right, bug.wrong))
    return folder
