--[[
  Settle one group: harvest its ledger, decide the next state, and do a bounded part of the work that follows.

  A second call finds nothing to do, unless the first returned `more`. `request` is empty, or the reason to
  cancel the group.

  Returns the state, the state before, whether work is left for another call, how many members can still finish,
  the states that the group entered, in order, and how much work the call did, in units of 3 microseconds.
]]
-- @include names
-- @include ledgers
-- @include restore_undos
-- @include harvest
-- @include trace_members
-- @include mark_members
-- @include saga
-- @include drop_pending
-- @include make_undos
-- @include requeue_undos
-- @include doom_resolved
-- @include store_counts
-- @include list_statuses
-- @include enter_state
-- @include add_end_jobs
-- @include apply_retention
local function settle(k, prefix, gid, now, request, grace)
  local group = redis.call("HMGET", k.group, "state", "totalJobs", "name", "cancelledCount", "attempt", "finishedAt",
    "retrying", "resolvedCount", "onEnd", "onEndLeft")
  local state, total, name = group[1], tonumber(group[2]), group[3]
  local before = state
  -- A request is stored, so that it holds even if its call ended before the state changed.
  if request == "" and state == "ACTIVE" then request = redis.call("HGET", k.parent, "requested") or "" end
  local budget = { drops = 200, undos = 200, bytes = 1000000, entries = 300000, longest = 300000, events = 20000 }
  local facts = { total = total, requested = request ~= "", undos_to_make = 0 }

  local _, missing = harvest(prefix, ledgers.members(k, prefix, gid, total - tonumber(group[4])), now)
  trace_members(k, prefix, state, missing, budget)
  local function count_members()
    facts.open, facts.completed = redis.call("SCARD", k.open), redis.call("HLEN", k.done)
    facts.failed = redis.call("ZCARD", k.failed)
  end
  count_members()

  local more, running = false, {}
  local failing = state == "ACTIVE" and facts.completed < total and (facts.failed > 0 or facts.requested)
  facts.failing = failing
  local given_up = failing or (state ~= "ACTIVE" and state ~= "COMPLETED")
  mark_members(k, redis.call("HKEYS", k.done), given_up and names.doom(gid) or nil, failing)
  if failing then redis.call("HSET", k.parent, "givenUp", 1) end
  if failing and facts.requested then redis.call("HSET", k.parent, "requested", request) end
  if failing or state == "COMPENSATING" then
    local open
    open, more, running = drop_pending(k, prefix, now, grace, budget)
    count_members()
    facts.open = open
  end
  local function count_undos() return tonumber(redis.call("HGET", k.group, "undoCount") or 0) end
  -- Before the first undo is added: the ledger of undos that somebody deleted would not be missing after it.
  if count_undos() > 0 then restore_undos(k, prefix) end
  if given_up then
    facts.undos_to_make = make_undos(k, prefix, gid, now, budget, running)
    if group[7] then
      facts.retried = state == "FAILED_COMPENSATION"
      facts.undos_to_make = facts.undos_to_make + requeue_undos(k, prefix, gid, now, budget)
    end
    more = more or facts.undos_to_make > 0
  end
  facts.undos = count_undos()
  local undos, resolved = { open = 0, done = 0, failed = 0 }, 0
  if facts.undos > 0 then
    if group[8] then resolved = doom_resolved(k, gid) end
    undos = harvest(prefix, ledgers.undos(k, prefix, facts.undos), now)
    -- An undo of which nothing is left counts as failed.
    undos.failed = undos.failed + math.max(0, facts.undos - undos.open - undos.done - undos.failed)
    undos.failed = math.max(0, undos.failed - resolved)
  end
  facts.undos_open, facts.undos_failed = undos.open, undos.failed

  -- A group with nothing left to undo goes through COMPENSATING to its end in one call.
  local entered, ended, ends = {}, {}, tonumber(group[5]) or (group[6] and 1 or 0)
  repeat
    local from = state
    state = saga.next_state(state, facts)
    if state ~= from then
      facts.retried = nil
      entered[#entered + 1] = state
      ends = enter_state(k, prefix, gid, now, { name = name, from = from, state = state, request = request, ends = ends })
      if saga.has_ended(state) then ended[#ended + 1] = { state = state, attempt = ends } end
    end
  until state == from

  local stored = redis.call("HMGET", k.group, "counts", "revision", "cancelledCount", "ttlSeconds")
  store_counts(k, gid, now, before, state, { completed = facts.completed, failed = facts.failed,
    cancelled = stored[3], undos = facts.undos, undone = undos.done, undo_failed = undos.failed, resolved = resolved },
    { counts = stored[1], revision = stored[2], owner = redis.call("HGET", k.parent, "owner"), ttl = stored[4] },
    function() return list_statuses(k, state, more) end)
  local end_jobs, retention_work = 0, 0
  if (group[9] and #ended > 0) or group[10] then end_jobs = add_end_jobs(k, prefix, gid, now, ended, group[10] or nil) end
  if saga.has_ended(state) and not more then more, retention_work = apply_retention(k, prefix, gid, now) end
  return state, before, more, facts.open, entered, 15 + 3 * total + 10 * end_jobs + retention_work
end
