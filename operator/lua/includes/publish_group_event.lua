--[[
  Add a group event to the stream that stock QueueEvents of the owning queue read.
]]
local function publish_group_event(k, event, gid, name, ...)
  redis.call("XADD", k.events, "MAXLEN", "~", 10000, "*", "event", "group:" .. event,
    "groupId", gid, "groupName", name, ...)
end
