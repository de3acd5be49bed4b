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
        "includes/outcome_of.lua",
        ' or redis.call("HEXISTS", k.parent, "removed:" .. key) == 1',
    ),
    "a member that only started is undone though only completed ones should be": Bug(
        "includes/make_undos.lua",
        "if mapping and (value or mapping.from_start) then",
        "if mapping then",
    ),
    "undos that the budget left out are forgotten": Bug(
        "includes/make_undos.lua", "left = left + 1", "left = 0"
    ),
    "a member at work is dropped": Bug(
        "includes/drop_pending.lua", "if active_ids(seen, prefix, queue)[id] then", "if false then"
    ),
    "a start is forgotten when its member is dropped": Bug(
        "includes/drop_pending.lua", 'redis.call("HSET", k.parent, "started:" .. key, 1)'
    ),
    "a dropped member is not counted": Bug(
        "includes/drop_pending.lua",
        'redis.call("HINCRBY", k.group, "cancelledCount", #statuses / 2)',
    ),
    "a worker is given up at once": Bug(
        "includes/give_up_worker.lua", "now - tonumber(since) >= grace", "true"
    ),
    "a worker is never given up": Bug(
        "includes/give_up_worker.lua", "now - tonumber(since) >= grace", "false"
    ),
    "a removed job counts as open": Bug(
        "includes/harvest.lua",
        "if counts.open + counts.done + counts.failed < ledger.expected then",
        "if false then",
    ),
    "5.x's bulk retry is believed": Bug(
        "includes/harvest.lua",
        'if job[1] and redis.call("ZSCORE", prefix .. ":" .. queue .. ":completed", id) then',
        "if false then",
    ),
    "a group ends while members are at work": Bug("includes/saga.lua", "facts.open == 0 and "),
    "a group ends before its undos do": Bug("includes/saga.lua", " and facts.undos_open == 0"),
    "a failed undo is taken for a success": Bug(
        "includes/saga.lua", 'facts.undos_failed > 0 and "undo_failed" or "undone"', '"undone"'
    ),
    "a request beats the last completion": Bug(
        "includes/saga.lua",
        "if facts.completed == facts.total and not facts.failing then",
        "if facts.completed == facts.total and not facts.requested then",
    ),
    "an end is announced twice": Bug(
        "includes/settle.lua",
        'publish_group_event(k, "completed", gid, name)',
        'publish_group_event(k, "completed", gid, name)\n' * 2,
    ),
    "late completions are not undone": Bug(
        "includes/settle.lua",
        'failing or (state ~= "ACTIVE" and state ~= "COMPLETED")',
        'failing or state == "COMPENSATING"',
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
        "includes/discard_group.lua", 'redis.call("SET", k.tomb, now, "PX", remembers)'
    ),
    "a running group can be removed": Bug(
        "remove_group.lua", "if not saga.has_ended(state) then", "if false then"
    ),
    "a removed group leaves a ghost at work": Bug(
        "remove_group.lua",
        'redis.call("LREM", base .. "active", 1, id) == 0 and redis.call("EXISTS", key) == 1',
        'redis.call("EXISTS", key) == 1',
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
    "a removed group leaves its undos behind": Bug(
        "remove_group.lua", "remove_jobs(k.undo, ledgers.undos(k, prefix).list())"
    ),
    # Interference by people and foreign clients.
    "a group that was given up completes": Bug(
        "includes/saga.lua",
        "facts.completed == facts.total and not facts.failing",
        "facts.completed == facts.total",
    ),
    "a completed member that is run again loses its undo": Bug(
        "includes/trace_members.lua",
        'redis.call("HSET", k.parent, "completed:" .. key, job.value or "null")',
    ),
    "a completed member that was run again and removed loses its undo": Bug(
        "includes/trace_members.lua", "restore(key, job.value)", "local _ = restore"
    ),
    "a manual retry changes the ledger of a settled group": Bug(
        "includes/mark_members.lua", "is_done and k.sealed or job[1]", "job[1]"
    ),
    "a member of a group that was given up runs": Bug(
        "includes/mark_members.lua", 'if doom then redis.call("HSET", key, "defa", doom) end'
    ),
    "a failed member is not doomed again": Bug(
        "includes/mark_members.lua",
        'redis.call("ZRANGE", k.failed, 0, -1)) do mark(key, false) end',
        "{}) do mark(key, false) end",
    ),
    "a missing member that started is not undone": Bug(
        "includes/trace_members.lua",
        "elseif job.started or not job.added then",
        "elseif not job.added then",
    ),
    "a missing member that may have started is not undone": Bug(
        "includes/trace_members.lua",
        "elseif job.started or not job.added then",
        "elseif job.started then",
    ),
    "an undo does not wait for the second run of its member": Bug(
        "includes/drop_pending.lua",
        "if give_up_worker(k, base, id, now, grace) then running[key] = rerun[key] end",
        "give_up_worker(k, base, id, now, grace)",
    ),
    "a completed member that waits for a second run stays in its queue": Bug(
        "includes/drop_pending.lua", "if job[1] and not job[2] and", "if false and"
    ),
    "a job that 5.x retried in bulk counts as failed while it runs": Bug(
        "includes/harvest.lua",
        "elseif job[1] == ledger.hash and not job[2] then",
        "elseif false then",
    ),
    "a member whose hash was deleted counts as open": Bug(
        "includes/harvest.lua", ' or redis.call("HGET", key, "parentKey") ~= ledger.hash'
    ),
    "a member in no list counts as pending": Bug(
        "includes/take_out_missing.lua",
        "not is_listed(queues, base, id, tonumber(job[1]), budget)",
        "false",
    ),
    "a deleted hash is not noticed": Bug(
        "includes/take_out_missing.lua",
        "if not job[1] or job[2] ~= ledger.hash or",
        "if not job[1] then lost = false elseif",
    ),
    "nobody is told that a late undo failed": Bug(
        "includes/saga.lua",
        "if no_undo_is_due and facts.undos_failed > 0 then event",
        "if false then event",
    ),
    "failed undos stay out of their set": Bug(
        "includes/restore_failed_undos.lua", 'redis.call("ZADD", base .. "failed", finished, id)'
    ),
    "a member in a long list holds up its group": Bug(
        "includes/drop_jobs.lua", 'is_long and "never" or "later"', '"later"'
    ),
    "the removal of a group makes a ghost of a doomed member": Bug(
        "remove_group.lua", 'if unsure[id] == "never" then', "if false then"
    ),
    "an answer contradicts itself": Bug(
        "includes/derive_state.lua",
        "return saga.next_state(saga.next_state(group.state, facts), facts)",
        "return group.state",
    ),
    "a completed member of a group that was given up can be run again": Bug(
        "includes/mark_members.lua", "if doom and is_done then remove_on_fail(key) end"
    ),
    "a member that only failed by its doom is undone": Bug(
        "includes/outcome_of.lua", 'not (job[1] == "1" and job[2] == names.doom(gid))', "true"
    ),
    "an undo in no list is waited for": Bug(
        "includes/needs_settling.lua",
        "if undo_open > 0 and take_out_missing",
        "if false and take_out_missing",
    ),
    "a wake-up that a foreign worker took is lost": Bug(
        "reclaim_wakeups.lua",
        'for _, list in ipairs({ "active", "paused" }) do',
        'for _, list in ipairs({ "paused" }) do',
    ),
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
