--[[
  Add a group that changed to the stream of its owner, if it has one. Readers keep checkpoints of their own,
  so entries are never removed except by trimming.
]]
local function publish_owner_change(k, gid, owner)
  if owner then
    redis.call("XADD", k.owner_changes .. owner, "MAXLEN", "~", 10000, "*", "group", gid)
  end
end
