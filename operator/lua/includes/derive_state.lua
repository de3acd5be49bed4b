--[[
  Return the state that a group would have if it were settled now. Nothing is written.
]]
-- @include outcome_of
-- @include undo_mappings
-- @include saga
local function derive_state(k, group)
  if saga.has_ended(group.state) then return group.state end
  local facts = {
    total = tonumber(group.totalJobs), completed = group.completedCount, failed = group.failedCount,
    open = redis.call("SCARD", k.open), requested = redis.call("HEXISTS", k.parent, "requested") == 1,
    undos = tonumber(group.undoCount or 0), undos_open = redis.call("SCARD", k.undo_open),
    undos_failed = group.undoFailedCount, undos_to_make = 0,
  }
  -- Only settling finds out what happened to a member that its ledger lost, or that somebody ran again.
  local function needs_undo(key, mapping_of)
    local value, started = outcome_of(k, key)
    local has_failed = redis.call("ZSCORE", k.failed, key)
    if not value and not has_failed then return redis.call("HGET", k.jobs, key) ~= "cancelled" or started end
    local job = redis.call("HMGET", key, "parentKey", "returnvalue")
    if value or (job[1] == k.parent and not job[2]) then return true end
    if group.state == "ACTIVE" and redis.call("HEXISTS", k.parent, "removed:" .. key) == 0 then
      if job[1] ~= k.parent and job[1] ~= k.sealed then return true end
      started = true
    end
    return started and mapping_of(key).from_start
  end
  -- If nothing is open, the group may end, unless members still need an undo.
  if facts.open == 0 and facts.undos_open == 0 then
    local members, mapping_of = undo_mappings.read(k)
    for _, key in ipairs(members) do
      if needs_undo(key, mapping_of) then facts.undos_to_make = facts.undos_to_make + 1 end
    end
    -- Failed undos that are to be retried are not in their queues yet.
    facts.undos_to_make = facts.undos_to_make + (redis.call("HGET", k.group, "retrying") or 0)
  end
  facts.undos = facts.undos + facts.undos_to_make
  return saga.next_state(saga.next_state(group.state, facts), facts)
end
