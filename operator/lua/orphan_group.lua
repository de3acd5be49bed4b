--[[
  Let go of a group: it belongs to nobody from now on, and is driven to its end all the same. One that
  is not there is never made any more, however late somebody tries.

  KEYS[1] parent     hash, the group's pseudo parent
  ARGV[1] now        milliseconds since the epoch
  ARGV[2] prefix     BullMQ's key prefix
  ARGV[3] gid        the group
  ARGV[4] remembers  milliseconds a tombstone stays

  Returns  1 if the group is there, 0 if it is not
]]
-- @include keys_of
local parent, now, prefix, gid, remembers = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local k = keys_of(prefix, gid, "")
if redis.call("HEXISTS", parent, "owner") == 0 then
  redis.call("SET", k.tomb, now, "PX", remembers)
  return 0
end
redis.call("HSET", parent, "owner", "headless")
return 1
