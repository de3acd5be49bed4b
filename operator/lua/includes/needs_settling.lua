--[[
  Return whether settling a parked group would change it, although nothing has woken it.

  Only the ledger is read, and for each open member its hash and its queue: reviewing a group costs a fraction
  of settling it.
]]
-- @include split_job_key
-- @include ledgers
-- @include queue_lists
-- @include take_out_missing
local function needs_settling(k, prefix, group, queues, seen, budget)
  local open, done, failed = redis.call("SCARD", k.open), redis.call("HLEN", k.done), redis.call("ZCARD", k.failed)
  local undo_open, undos = redis.call("SCARD", k.undo_open), tonumber(group.undoCount or 0)

  -- A bulk retry of 5.x leaves a job that waits, runs, has completed or has failed again among the failed ones.
  local function runs_again(set, parent)
    for _, key in ipairs(redis.call("ZRANGE", set, 0, -1)) do
      local job = redis.call("HMGET", key, "parentKey", "finishedOn")
      local queue, id = split_job_key(prefix, key)
      queue_lists(queues, prefix .. ":" .. queue .. ":", budget)
      local has_completed = redis.call("ZSCORE", prefix .. ":" .. queue .. ":completed", id)
      if job[1] == parent and (not job[2] or has_completed) then return true end
      budget.members = budget.members - 1
    end
    return false
  end

  -- Another producer used our parent: its job may take the place of a missing member.
  local function has_foreign()
    for _, key in ipairs(redis.call("HKEYS", k.done)) do
      if redis.call("HEXISTS", k.jobs, key) == 0 then return true end
      budget.members = budget.members - 1
    end
    return false
  end

  if group.state == "ACTIVE" then
    return failed > 0 or done == tonumber(group.totalJobs) or open + done < group.totalJobs - group.cancelledCount
      or redis.call("HEXISTS", k.parent, "requested") == 1 or has_foreign()
      or take_out_missing(ledgers.members(k, prefix, ""), prefix, queues, seen, budget)
  end
  local ledger_is_short = undo_open + redis.call("HLEN", k.undo_done) + redis.call("ZCARD", k.undo_failed) < undos
    or open + done + failed < group.totalJobs - group.cancelledCount
  if undo_open > 0 and take_out_missing(ledgers.undos(k, prefix), prefix, queues, seen, budget) then return true end
  if group.state == "COMPENSATING" then
    -- A driver that knows it settles it again and again until no member is open.
    return open > 0 or undo_open == 0 or ledger_is_short
  end
  local is_undone = undo_open == 0 and tonumber(group.undoFailedCount or 0) == 0
  if group.state == "FAILED_COMPENSATION" and is_undone then return true end
  return ledger_is_short or done ~= tonumber(group.completedCount)
    or redis.call("ZCARD", k.undo_failed) ~= (group.undoFailedCount or 0) + (group.resolvedCount or 0)
    or runs_again(k.failed, k.parent) or runs_again(k.undo_failed, k.undo)
    or (open > 0 and take_out_missing(ledgers.members(k, prefix, ""), prefix, queues, seen, budget))
end
