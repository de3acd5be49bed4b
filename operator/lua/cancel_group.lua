--[[
  Cancel a running group: drop its pending members and undo the completed ones.

  The ledger is harvested first: a group whose last member has just completed is not cancelled.

  KEYS[1] parent  hash, the pseudo parent of the group's members
  ARGV[1] now     milliseconds since the epoch
  ARGV[2] prefix  BullMQ's key prefix
  ARGV[3] gid     id of the group
  ARGV[4] grace   milliseconds after which an active member without a worker is given up

  Returns  snapshot in JSON
  Errors   GROUPNOTFOUND  INVALIDSTATE
]]
-- @include keys_of
-- @include settle
-- @include park
-- @include snapshot
local parent, now, prefix, gid, grace = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])

local queue = redis.call("HGET", parent, "queue")
local k = keys_of(prefix, gid, queue or "")
if not queue or redis.call("EXISTS", k.group) == 0 then return redis.error_reply("GROUPNOTFOUND " .. gid) end
local state, before, more = settle(k, prefix, gid, now, "cancelled", grace)
park(k, gid, state, more, "")
if before ~= "ACTIVE" or state == "COMPLETED" then
  return redis.error_reply("INVALIDSTATE " .. state)
end
return cjson.encode(snapshot(k, gid))
