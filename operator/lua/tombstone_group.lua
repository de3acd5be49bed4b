--[[
  Leave a tombstone for a group that does not exist, so that a delayed call cannot create it. A group that
  exists is not changed.

  KEYS[1] parent     hash, the pseudo parent of the group's members
  ARGV[1] now        milliseconds since the epoch
  ARGV[2] prefix     BullMQ's key prefix
  ARGV[3] gid        id of the group
  ARGV[4] remembers  milliseconds the tombstone is kept

  Returns  1 if the group exists, 0 if not
  Errors   NEWERFORMAT  STATELOST
]]
-- @include find_group
local parent, now, prefix, gid, remembers = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local k, problem = find_group(parent, prefix, gid)
if not problem then return 1 end
if problem == "NEWERFORMAT" then return redis.error_reply("NEWERFORMAT " .. gid) end
if redis.call("HEXISTS", parent, "queue") == 1 then return redis.error_reply("STATELOST " .. gid) end
redis.call("SET", k.tomb, now, "PX", remembers)
return 0
