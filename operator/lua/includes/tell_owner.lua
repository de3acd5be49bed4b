--[[
  Let the owner of a group know that it changed, whoever moved it on. A group without one has nobody
  to tell. Several changes before the owner takes the id are one.
]]
local function tell_owner(k, gid, now)
  local owner = redis.call("HGET", k.parent, "owner")
  if owner == "headless" then return end
  local changed = k.books .. ":changed:" .. owner
  redis.call("ZADD", changed, now, gid)
  redis.call("ZADD", changed .. ":marker", 0, "0")
end
