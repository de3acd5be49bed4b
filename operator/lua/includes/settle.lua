--[[
  Settle one group: harvest its ledger, decide the next state, and do a bounded part of the work that follows.

  A second call finds nothing to do, unless the first returned `more`. `request` is empty, or the reason to
  cancel the group.

  Returns the state, the state before, whether work is left for another call, and how many members can still
  finish.
]]
-- @include harvest
-- @include trace_members
-- @include mark_members
-- @include saga
-- @include publish_group_event
-- @include publish_owner_change
-- @include first_failure
-- @include drop_pending
-- @include make_undos
-- @include call_in_batches
-- @include undo_results
-- @include apply_retention
local function settle(k, prefix, gid, now, request, grace)
  local group = redis.call("HMGET", k.group, "state", "totalJobs", "name", "cancelledCount")
  local state, total, name = group[1], tonumber(group[2]), group[3]
  local before = state
  -- A request is stored, so that it holds even if its call ended before the state changed.
  if request == "" and state == "ACTIVE" then request = redis.call("HGET", k.parent, "requested") or "" end
  local budget = { drops = 200, undos = 200, bytes = 1000000, entries = 300000, longest = 300000, events = 20000 }
  local facts = { total = total, requested = request ~= "", undos_to_make = 0 }

  local _, missing = harvest(prefix, {
    open = k.open, done = k.done, failed = k.failed, hash = k.parent, members = k.jobs,
    expected = total - tonumber(group[4]),
    list = function()
      local keys, statuses = {}, redis.call("HGETALL", k.jobs)
      for i = 1, #statuses, 2 do
        if statuses[i + 1] ~= "cancelled" then keys[#keys + 1] = statuses[i] end
      end
      return keys
    end,
  }, now)
  trace_members(k, prefix, missing, budget)
  local function count_members()
    facts.open, facts.completed = redis.call("SCARD", k.open), redis.call("HLEN", k.done)
    facts.failed = redis.call("ZCARD", k.failed)
  end
  count_members()

  local more, running = false, {}
  local failing = state == "ACTIVE" and facts.completed < total and (facts.failed > 0 or facts.requested)
  local given_up = failing or (state ~= "ACTIVE" and state ~= "COMPLETED")
  mark_members(k, given_up and "group " .. gid .. " was given up" or nil)
  if failing and facts.requested then redis.call("HSET", k.parent, "requested", request) end
  if failing or state == "COMPENSATING" then
    local open
    open, more, running = drop_pending(k, prefix, now, grace, budget)
    count_members()
    facts.open = open
  end
  if given_up then
    facts.undos_to_make = make_undos(k, prefix, gid, now, budget, running)
    more = more or facts.undos_to_make > 0
  end
  facts.undos = tonumber(redis.call("HGET", k.group, "undoCount") or 0)
  local undos = { open = 0, done = 0, failed = 0 }
  if facts.undos > 0 then
    undos = harvest(prefix, {
      open = k.undo_open, done = k.undo_done, failed = k.undo_failed, hash = k.undo, members = k.undo,
      expected = facts.undos,
      list = function()
        local keys, made = {}, redis.call("HGETALL", k.undo)
        for i = 1, #made, 2 do
          if string.sub(made[i + 1], 1, #prefix + 1) == prefix .. ":" then keys[#keys + 1] = made[i] end
        end
        return keys
      end,
    }, now)
  end
  facts.undos_open, facts.undos_failed = undos.open, undos.failed

  local function record_failure()
    local job_id, reason, attempts = first_failure(k, prefix)
    if job_id == "" then reason = request end
    redis.call("HSET", k.group, "failedJobId", job_id, "reason", reason, "failedAttempts", attempts, "failedAt", now)
    return job_id, reason
  end
  -- A group with nothing left to undo goes through COMPENSATING to its end in one call.
  repeat
    local from = state
    state = saga.next_state(state, facts)
    if state ~= from then
      if state == "COMPLETED" then
        publish_group_event(k, "completed", gid, name)
      elseif state == "COMPENSATING" then
        local job_id, reason = record_failure()
        publish_group_event(k, "compensating", gid, name, "failedJobId", job_id, "reason", reason)
      else
        if from == "ACTIVE" then record_failure() end
        publish_group_event(k, "failed", gid, name, "state", state, "compensationResults", undo_results(k, prefix))
      end
    end
  until state == from

  local ended = saga.has_ended(state)
  local cancelled = redis.call("HGET", k.group, "cancelledCount")
  local counts = table.concat({ state, facts.completed, facts.failed, cancelled, facts.undos, undos.done, undos.failed }, " ")
  if counts ~= redis.call("HGET", k.group, "counts") then
    local statuses = {}
    local function mark(keys, status)
      for _, key in ipairs(keys) do
        statuses[#statuses + 1] = key
        statuses[#statuses + 1] = status
      end
    end
    mark(redis.call("HKEYS", k.done), "completed")
    mark(redis.call("ZRANGE", k.failed, 0, -1), "failed")
    if state == "COMPENSATING" and not more then mark(redis.call("SMEMBERS", k.open), "active") end
    call_in_batches("HSET", k.jobs, statuses)
    redis.call("HSET", k.group, "state", state, "completedCount", facts.completed, "failedCount", facts.failed,
      "undoneCount", undos.done, "undoFailedCount", undos.failed, "counts", counts, "updatedAt", now)
    if ended and not saga.has_ended(before) then
      redis.call("HSET", k.group, "finishedAt", now)
      redis.call("ZADD", k.ended, now, gid)
    end
    redis.call("HINCRBY", k.group, "revision", 1)
    publish_owner_change(k, gid)
  end
  if ended and not more then more = apply_retention(k, prefix, now) end
  return state, before, more, facts.open
end
