--[[
  Let the owner of a group know that it changed, whoever moved it on. A group without one has nobody
  to tell. The owner takes the entry off; several changes before that are one.
]]
local function tell_owner(k, gid, now)
  local owner = redis.call("HGET", k.parent, "owner")
  if owner ~= "headless" then redis.call("ZADD", k.books .. ":changed:" .. owner, now, gid) end
end
