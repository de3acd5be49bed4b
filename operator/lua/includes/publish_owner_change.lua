--[[
  Add a group that changed to the stream of its owner, if it has one. Readers keep checkpoints of their own,
  so entries are never removed except by trimming.
]]
-- @include names
local function publish_owner_change(k, gid)
  local owner = redis.call("HGET", k.parent, "owner")
  if owner ~= names.headless then
    redis.call("XADD", k.owner_changes .. owner, "MAXLEN", "~", 10000, "*", "group", gid)
  end
end
