--[[
  Read the state and the counts of a group. The counts are right even while no driver runs.

  KEYS[1] parent  hash, the pseudo parent of the group's members
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] gid     id of the group

  Returns  snapshot in JSON, or nothing if there is no such group
]]
-- @include keys_of
-- @include snapshot
local parent, prefix, gid = KEYS[1], ARGV[1], ARGV[2]

local queue = redis.call("HGET", parent, "queue")
local k = keys_of(prefix, gid, queue or "")
if not queue or redis.call("EXISTS", k.group) == 0 then return false end
return cjson.encode(snapshot(k, gid))
