--[[
  Return whether nothing is left of a group, so that no pass of the resync restores it.
]]
-- @include keys_of
local function is_gone(k, prefix, gid)
  if redis.call("EXISTS", k.parent) == 1 then return false end
  for _, queue in ipairs(redis.call("SMEMBERS", k.queues)) do
    if redis.call("EXISTS", keys_of(prefix, gid, queue).group) == 1 then return false end
  end
  return true
end
