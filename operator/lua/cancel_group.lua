--[[
  Cancel a running group: drop its pending members and undo the completed ones.

  The ledger is harvested first: a group whose last member has just completed is not cancelled.

  KEYS[1] parent  hash, the pseudo parent of the group's members
  ARGV[1] now     milliseconds since the epoch
  ARGV[2] prefix  BullMQ's key prefix
  ARGV[3] gid     id of the group
  ARGV[4] grace   milliseconds after which an active member without a worker is given up

  Returns  snapshot in JSON
  Errors   GROUPNOTFOUND  INVALIDSTATE  NEWERFORMAT
]]
-- @include find_group
-- @include settle
-- @include park
-- @include snapshot
local parent, now, prefix, gid, grace = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])

local k, problem = find_group(parent, prefix, gid)
if problem then return redis.error_reply(problem .. " " .. gid) end
local state, before, more = settle(k, prefix, gid, now, "cancelled", grace)
park(k, gid, state, more, "")
if before ~= "ACTIVE" or state == "COMPLETED" then
  return redis.error_reply("INVALIDSTATE " .. state)
end
return cjson.encode(snapshot(k, gid))
