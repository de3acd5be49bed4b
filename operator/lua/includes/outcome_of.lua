--[[
  Return what is known of a member that has ended: the value to hand to its undo, if it ever completed, and
  whether it may have started. A member that is open returns nothing: it may still finish.
]]
-- @include was_refused
local function outcome_of(k, gid, key)
  if redis.call("SISMEMBER", k.open, key) == 1 then return nil, false end
  local value = redis.call("HGET", k.done, key) or redis.call("HGET", k.parent, "completed:" .. key)
  if value or redis.call("HEXISTS", k.parent, "started:" .. key) == 1 then return value, true end
  local failed_at = redis.call("ZSCORE", k.failed, key)
  if not failed_at or redis.call("HEXISTS", k.parent, "removed:" .. key) == 1 then return nil, false end
  -- A refusal was recorded with its time: a later failure of the same member is another one.
  return nil, not was_refused(gid, key) and redis.call("HGET", k.parent, "refused:" .. key) ~= failed_at
end
