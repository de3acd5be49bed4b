--[[
  Record when a group that has just ended is due to be removed, if it has a time to live. A failed compensation does
  not expire: a person has to act.

  The key of due times may have another type. That must not stop the settling of a group, which has written already.
]]
local function set_due(k, gid, state, finished, ttl)
  if not tonumber(ttl) then return end
  if state == "FAILED_COMPENSATION" then
    redis.pcall("ZREM", k.due, gid)
  else
    redis.pcall("ZADD", k.due, string.format("%.0f", finished + ttl * 1000), gid)
  end
end
