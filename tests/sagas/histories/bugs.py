"""Bugs that test_planted_bugs.py plants in a copy of the Lua scripts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """A text that occurs once in a script, and its wrong replacement."""

    file: str
    right: str
    wrong: str = ""


BUGS = {
    "a retried undo is missing in the ledger": Bug(
        "includes/requeue_undos.lua", 'redis.call("SADD", k.undo_open, key)'
    ),
    "undos that the budget left out are not retried": Bug(
        "includes/requeue_undos.lua", "left = left + 1", "left = 0"
    ),
    "a resolved undo can be run again": Bug(
        "includes/doom_resolved.lua", ', "defa", "the undo was resolved"'
    ),
    "a mapping stays open after its undo was added": Bug(
        "includes/make_undos.lua", "undo_mappings.close(k, closed)"
    ),
    "a restored group forgets which members have an undo": Bug(
        "includes/restore_hash.lua", "undo_mappings.restore(k, undos)"
    ),
    "a restored group undoes members again": Bug(
        "includes/restore_hash.lua",
        "undo_mappings.restore(k, undos)",
        "undo_mappings.restore(k, {})",
    ),
    "a restored group forgets that starting is enough for an undo": Bug(
        "includes/undo_mappings.lua", 'string.sub(members, n, n) == "2"', "false"
    ),
    "a member is undone that was removed and never ran": Bug(
        "includes/mark_members.lua",
        ' and redis.call("HEXISTS", k.parent, "removed:" .. key) == 0',
    ),
    "a member that only started is undone though only completed ones should be": Bug(
        "includes/make_undos.lua",
        " and (value or mapping_of(key).from_start) then",
        " then",
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
        'elseif job[1] == ledger.hash and redis.call("ZSCORE", ',
        'elseif false and redis.call("ZSCORE", ',
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
        "includes/enter_state.lua",
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
    "a foreign job takes the place of a member": Bug(
        "includes/complete.lua", 'if not status or status == "cancelled" then return end'
    ),
    "a group completes although a member is missing": Bug(
        "includes/complete.lua", "completed = #done", "completed = #done > 0 and total or 0"
    ),
    "a group that completed is not parked": Bug(
        "settle_wakeups.lua", 'call_in_batches("ZADD", parked, completed)'
    ),
    "members of a group that completed are not sealed": Bug(
        "includes/complete.lua", "mark_members(k, done)"
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
        "includes/remove_part.lua",
        'redis.call("LREM", base .. "active", 1, id) == 0 and redis.call("EXISTS", key) == 1',
        'redis.call("EXISTS", key) == 1',
    ),
    "an ended group's jobs are kept": Bug(
        "includes/apply_retention.lua",
        "remove(base, set, id) end",
        "local _ = id end",
    ),
    "a failed job goes as if it had completed": Bug(
        "includes/apply_retention.lua",
        'set == "failed" and "on_fail"',
        'set == "failed" and "on_complete"',
    ),
    "a removed group leaves its undos behind": Bug(
        "includes/remove_part.lua", "remove_jobs(k.undo, ledgers.undos(k, prefix).list())"
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
        "includes/trace_members.lua",
        "if job.value then\n        restore(key, job.value)",
        "if false then\n        restore(key, job.value)",
    ),
    "a manual retry changes the ledger of a settled group": Bug(
        "includes/mark_members.lua", "if is_done and parent ~= k.sealed then", "if false then"
    ),
    "a member of a group that was given up runs": Bug(
        "includes/mark_members.lua",
        ', "defa", job[1] or doom)',
        ")",
    ),
    "a failed member is not doomed again": Bug(
        "includes/mark_members.lua",
        "mark(key, false)\n    if failing",
        "if failing",
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
        "includes/drop_pending.lua", "if job[1] == k.sealed and not job[2] and", "if false and"
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
        "includes/take_jobs.lua", 'is_long and "never" or "later"', '"later"'
    ),
    "the removal of a group makes a ghost of a doomed member": Bug(
        "includes/remove_part.lua", 'if unsure[id] == "never" then', "if false then"
    ),
    "an answer contradicts itself": Bug(
        "includes/derive_state.lua",
        "return saga.next_state(saga.next_state(group.state, facts), facts)",
        "return group.state",
    ),
    "a member that was refused can be run again": Bug(
        "includes/mark_members.lua", "local opts = remove_on_fail(job[2])", "local opts = job[2]"
    ),
    "a member that only failed by its doom is undone": Bug(
        "includes/mark_members.lua", "if failing and redis.call", "if redis.call"
    ),
    "a start before the group was given up is forgotten": Bug(
        "includes/mark_members.lua",
        "if not is_done and has_started(key) then",
        "if false then",
    ),
    "the history of a job with the id of a member counts": Bug(
        "includes/read_history.lua", ' and entry[2][7] == "group"'
    ),
    "a job with the id of a member is removed with its group": Bug(
        "includes/remove_part.lua", "and not belongs(k, gid, key) then", "and false then"
    ),
    "an end is derived although a member that ran is missing": Bug(
        "includes/derive_state.lua", 'redis.call("HGET", k.jobs, key) ~= "cancelled"', "false"
    ),
    "an end is derived although a completed member failed when it ran again": Bug(
        "includes/derive_state.lua", "(job[1] == k.parent and not job[2])", "false"
    ),
    "a completion that 5.x did not record is lost with its job": Bug(
        "includes/trace_members.lua", 'job.last == "completed" then', "false then"
    ),
    "a group that is being removed is settled": Bug(
        "includes/settle_and_park.lua", "if is_leaving and not problem then", "if false then"
    ),
    "a retried member of an ended group that vanishes stays open": Bug(
        "includes/needs_settling.lua",
        "(open > 0 and take_out_missing(",
        "(false and take_out_missing(",
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
    # Keys and lists that people and foreign clients delete or use.
    "a resync that meets a late completion calls it a repair": Bug(
        "includes/settle_and_park.lua", '    and not (before == "COMPENSATING" and was_open > 0)\n'
    ),
    "a restored ledger lacks completed members without a hash": Bug(
        "includes/restore_parent.lua",
        'redis.call("HSETNX", k.done, key, "null")',
    ),
    "a restored ledger takes completed members for open ones": Bug(
        "includes/restore_entry.lua",
        'if job[1] == sealed or redis.call("ZSCORE", base .. "completed", id) then',
        "if false then",
    ),
    "a group that completed announces nothing": Bug(
        "includes/complete.lua", 'group[1] ~= "ACTIVE" or group[9] or', 'group[1] ~= "ACTIVE" or'
    ),
    "jobs of onEnd that could not be added are forgotten": Bug(
        "review_groups.lua", "group.onEndLeft or group.retrying", "group.retrying"
    ),
    "jobs of onEnd are added again and again": Bug(
        "includes/add_end_jobs.lua", 'redis.call("HDEL", k.group, "onEndLeft", "onEndError")'
    ),
    "a second end announces the first one": Bug(
        "includes/add_end_jobs.lua",
        "names.end_job_id(gid, n - 1, each.attempt)",
        "names.end_job_id(gid, n - 1, 1)",
    ),
    "a restored group announces nothing": Bug(
        "includes/restore_hash.lua",
        'if redis.call("EXISTS", k.on_end) == 1 then',
        "if false then",
    ),
    "undos are restored from default queues alone": Bug(
        "includes/restore_undos.lua",
        "undo_mappings.target(prefix, key, mapping_of(key))",
        "undo_mappings.target(prefix, key, {})",
    ),
    "the ledger of undos is not restored": Bug(
        "includes/settle.lua",
        "if count_undos() > 0 then restore_undos(k, prefix) end",
    ),
    "a group without its parent is not found": Bug(
        "find_unparked.lua",
        'if not redis.call("ZSCORE", parked, entry.member) then',
        "if false then",
    ),
    "the index stays deleted": Bug(
        "review_groups.lua",
        'if redis.call("ZADD", k.index, "NX", group.createdAt, gid) == 1 then',
        "if false then",
    ),
    "a group outlives its owning queue": Bug(
        "review_groups.lua", "discard_group(k, gid, queue, now, remembers)"
    ),
    "the size of a ledger is not checked": Bug(
        "find_short.lua", "size(parent) < group[1] - (group[2] or 0)", "false"
    ),
    "the size of a ledger of undos is not checked": Bug(
        "find_short.lua", "undos > 0 and size(", "false and size("
    ),
    "a wake-up that a foreign worker finished is lost": Bug(
        "reclaim_wakeups.lua", '{ "completed", "failed", "delayed", "prioritized" }', "{}"
    ),
    "wake-ups that were set aside are lost": Bug(
        "reclaim_wakeups.lua",
        'for _, list in ipairs({ "active", "paused" }) do',
        'for _, list in ipairs({ "active" }) do',
    ),
    "the pseudo queue stays paused": Bug(
        "reclaim_wakeups.lua", 'redis.call("HDEL", base .. "meta", "paused") == 1', "false"
    ),
    "events of removals are ignored": Bug("read_hints.lua", 'kind == "removed" or '),
    "events of retries are ignored": Bug(
        "read_hints.lua",
        ' or (kind == "waiting" and (prev == "completed" or prev == "failed"))',
    ),
    "a member that was removed from its parent is lost": Bug(
        "includes/ledgers.lua",
        "if not job[1] or job[2] == k.sealed or not belongs(k, gid, key) then",
        "if true then",
    ),
    "members of a paused queue wait in a list that a resume may destroy": Bug(
        "includes/push_job.lua", "if job.priority or queue.is_paused then", "if job.priority then"
    ),
    "members that a resume left behind stay there": Bug(
        "includes/release_jobs.lua", "if #left > 0 then", "if false then"
    ),
    "a restored group forgets that it was given up": Bug(
        "includes/restore_hash.lua", "(#undos > 0 or stored[2])", "(#undos > 0)"
    ),
    "a restored group continues": Bug(
        "includes/restore_hash.lua",
        'redis.call("HSET", k.parent, "requested", "keys of the queue " .. queue',
        'local _ = ("keys of the queue " .. queue',
    ),
    "a restored group forgets members": Bug(
        "includes/restore_hash.lua", '"totalJobs", total,', '"totalJobs", known,'
    ),
    "a running group whose hash was deleted is lost": Bug(
        "includes/settle_and_park.lua",
        "restored = not is_leaving and restore_hash(k, prefix, gid, known, now)",
        "restored = false and restore_hash",
    ),
    "an ended group whose hash was deleted is restored": Bug(
        "includes/settle_and_park.lua",
        'if redis.call("HEXISTS", parent, "ended") == 1 then',
        "if false then",
    ),
    "an ended group whose hash was deleted leaves its ledger": Bug(
        "review_groups.lua", "(problem or (state ~=", "((state ~="
    ),
    "an answered job stays open": Bug(
        "includes/finish_member.lua", 'redis.call("SREM", k.open, key)'
    ),
    "the last answer does not wake its group": Bug(
        "includes/finish_member.lua",
        'if is_parked and redis.call("SCARD", k.open) == 0 then wake_group(k, gid) end',
    ),
    "an answer that fails a job does not give up its group": Bug(
        "includes/finish_member.lua", 'redis.call("ZADD", k.failed, now, key)'
    ),
    "a second answer is accepted": Bug("answer_member.lua", "if answered then", "if false then"),
    "a group that was given up accepts answers": Bug(
        "answer_member.lua", 'if state ~= "ACTIVE" then', "if false then"
    ),
}
