--[[
  Read a group's state and counts, right even while nobody drives it.

  KEYS[1] parent  hash, the group's pseudo parent
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] gid     the group

  Returns  snapshot, or nothing if there is no such group
]]
-- @include keys_of
-- @include snapshot
local parent, prefix, gid = KEYS[1], ARGV[1], ARGV[2]

local queue = redis.call("HGET", parent, "queue")
local k = keys_of(prefix, gid, queue or "")
if not queue or redis.call("EXISTS", k.group) == 0 then return false end
return snapshot(k, gid)
