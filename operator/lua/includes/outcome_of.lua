--[[
  Return what is known of a member that has ended: the value of a run that completed, and whether the member may
  have started. A member that is open returns nothing: it may still finish.
]]
local function outcome_of(k, key)
  if redis.call("SISMEMBER", k.open, key) == 1 then return nil, false end
  local value = redis.call("HGET", k.done, key) or redis.call("HGET", k.parent, "completed:" .. key)
  return value, value and true or redis.call("HEXISTS", k.parent, "started:" .. key) == 1
end
