--[[
  Remove the owner of a group. Drivers still settle the group until it ends. If there is no such group,
  leave a tombstone, so that a delayed call cannot create it.

  KEYS[1] parent     hash, the pseudo parent of the group's members
  ARGV[1] now        milliseconds since the epoch
  ARGV[2] prefix     BullMQ's key prefix
  ARGV[3] gid        id of the group
  ARGV[4] remembers  milliseconds a tombstone is kept
  ARGV[5] release    1 to have a driver remove the group after its end; such a group keeps the name of its
                     resource. Else 0

  Returns  0 if there is no such group, 2 if this call released it, else 1
  Errors   NEWERFORMAT
]]
-- @include find_group
local parent, now, prefix, gid, remembers, release = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local k, problem = find_group(parent, prefix, gid)
if problem == "NEWERFORMAT" then return redis.error_reply("NEWERFORMAT " .. gid) end
if redis.call("HEXISTS", parent, "queue") == 0 then
  redis.call("SET", k.tomb, now, "PX", remembers)
  return 0
end
redis.call("HDEL", parent, "owner")
redis.call("HDEL", k.group, "owner")
if release == "1" then return 1 + redis.call("ZADD", k.released, "NX", now, gid) end
redis.call("HDEL", k.group, "resource")
return 1
