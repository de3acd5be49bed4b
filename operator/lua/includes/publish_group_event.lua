--[[
  Publish a group event where stock QueueEvents of the owning queue hear it.
]]
local function announce(k, event, gid, name, ...)
  redis.call("XADD", k.events, "MAXLEN", "~", 10000, "*", "event", "group:" .. event,
    "groupId", gid, "groupName", name, ...)
end
