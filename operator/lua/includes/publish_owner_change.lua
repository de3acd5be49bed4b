--[[
  Let the owner of a group know that it changed, whoever moved it on. A group without one has nobody
  to tell. Readers remember how far they read, so nothing is taken off; the oldest entries go.
]]
local function tell_owner(k, gid)
  local owner = redis.call("HGET", k.parent, "owner")
  if owner ~= "headless" then
    redis.call("XADD", k.books .. ":changed:" .. owner, "MAXLEN", "~", 10000, "*", "group", gid)
  end
end
