--[[
  Return the state that a group would have if it were settled now. Nothing is written.
]]
-- @include names
-- @include saga
local function derive_state(k, group)
  if saga.has_ended(group.state) then return group.state end
  local facts = {
    total = tonumber(group.totalJobs), completed = group.completedCount, failed = group.failedCount,
    open = redis.call("SCARD", k.open), requested = redis.call("HEXISTS", k.parent, "requested") == 1,
    undos = tonumber(group.undoCount or 0), undos_open = redis.call("SCARD", k.undo_open),
    undos_failed = group.undoFailedCount, undos_to_make = 0,
  }
  local state = saga.next_state(group.state, facts)
  if state == "COMPENSATING" and facts.open == 0 and facts.undos_open == 0 then
    for _, key in ipairs(redis.call("HKEYS", k.templates)) do
      if not names.is_mapping(key) and redis.call("HEXISTS", k.done, key) == 1 then
        facts.undos_to_make = facts.undos_to_make + 1
      end
    end
    state = saga.next_state(state, facts)
  end
  return state
end
