--[[
  Give up a running group: what is pending goes, what completed is undone.

  The ledger is harvested first, so a group whose last member just completed is not cancelled.

  KEYS[1] parent  hash, the group's pseudo parent
  ARGV[1] now     milliseconds since the epoch
  ARGV[2] prefix  BullMQ's key prefix
  ARGV[3] gid     the group
  ARGV[4] grace   milliseconds an active member may be without its worker while compensating

  Returns  snapshot
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
return snapshot(k, gid)
