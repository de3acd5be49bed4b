--[[
  See to it that a group that is not there is never made, however late somebody tries. One that is there
  is left as it is.

  KEYS[1] parent     hash, the group's pseudo parent
  ARGV[1] now        milliseconds since the epoch
  ARGV[2] prefix     BullMQ's key prefix
  ARGV[3] gid        the group
  ARGV[4] remembers  milliseconds the tombstone stays

  Returns  1 if the group is there, 0 if it is not
  Errors   STATELOST
]]
-- @include keys_of
local parent, now, prefix, gid, remembers = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local queue = redis.call("HGET", parent, "queue")
local k = keys_of(prefix, gid, queue or "")
if queue then
  return redis.call("EXISTS", k.group) == 1 and 1 or redis.error_reply("STATELOST " .. gid)
end
redis.call("SET", k.tomb, now, "PX", remembers)
return 0
