--[[
  Return what is known of a member that has ended: the value to hand to its undo, if it ever completed, and
  whether it may have started. A member that is open returns nothing: it may still finish. A worker that takes
  a doomed member counts the start, but does not run it.
]]
-- @include names
local function outcome_of(k, gid, key)
  if redis.call("SISMEMBER", k.open, key) == 1 then return nil, false end
  local value = redis.call("HGET", k.done, key) or redis.call("HGET", k.parent, "completed:" .. key)
  if value or redis.call("HEXISTS", k.parent, "started:" .. key) == 1 then return value, true end
  if not redis.call("ZSCORE", k.failed, key) or redis.call("HEXISTS", k.parent, "removed:" .. key) == 1 then
    return nil, false
  end
  local job = redis.call("HMGET", key, "ats", "failedReason")
  return nil, not (job[1] == "1" and job[2] == names.doom(gid))
end
