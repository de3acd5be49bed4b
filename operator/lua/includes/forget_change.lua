--[[
  Take off what an owner was told of a group, whether or not it has looked since.
]]
local function forget_change(k, owner, gid)
  local changed = k.books .. ":changed:" .. owner
  redis.call("ZREM", changed, gid)
  redis.call("ZREM", changed .. ":taken", gid)
  if redis.call("EXISTS", changed) == 0 then redis.call("UNLINK", changed .. ":marker") end
end
