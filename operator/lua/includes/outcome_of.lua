--[[
  Return what is known of a member that has ended: the value to hand to its undo, if it ever completed, and
  whether it may have started. A member that is open returns nothing: it may still finish.

  The ledger has the value of the first run. If somebody ran the member again, the hash has the last value.
]]
-- @include was_refused
local function outcome_of(k, gid, key)
  if redis.call("SISMEMBER", k.open, key) == 1 then return nil, false end
  local value = redis.call("HGET", k.done, key) or redis.call("HGET", k.parent, "completed:" .. key)
  if value then
    local job = redis.call("HMGET", key, "parentKey", "finishedOn", "returnvalue")
    local is_ours = job[1] == k.parent or job[1] == k.sealed
    return is_ours and job[2] and job[3] or value, true
  end
  if redis.call("HEXISTS", k.parent, "started:" .. key) == 1 then return nil, true end
  local failed_at = redis.call("ZSCORE", k.failed, key)
  if not failed_at or redis.call("HEXISTS", k.parent, "removed:" .. key) == 1 then return nil, false end
  if redis.call("EXISTS", key) == 1 then return nil, not was_refused(gid, key) end
  -- A refusal was recorded with its time: a later failure of the same member is another one.
  return nil, redis.call("HGET", k.parent, "refused:" .. key) ~= failed_at
end
