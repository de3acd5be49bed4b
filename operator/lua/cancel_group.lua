--[[
  Cancel a running group: drop its pending members and undo the completed ones.

  The ledger is harvested first: a group whose last member has just completed is not cancelled.

  KEYS[1] parent  hash, the pseudo parent of the group's members
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] gid     id of the group
  ARGV[3] grace   milliseconds after which an active member without a worker is given up
  ARGV[4] by      who asked for it, or empty

  Returns  JSON, as settle_group.lua: state, entered, changed, settledAt, ranFor and group
  Errors   GROUPNOTFOUND  INVALIDSTATE  NEWERFORMAT
]]
-- @include now_ms
-- @include find_group
-- @include settle
-- @include park
-- @include record
-- @include saga
-- @include snapshot
local parent, prefix, gid, grace, by = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local k, problem = find_group(parent, prefix, gid)
if problem then return redis.error_reply(problem .. " " .. gid) end
if redis.call("EXISTS", k.tomb) == 1 then return redis.error_reply("GROUPNOTFOUND " .. gid) end
redis.call("LLEN", k.records) -- fails before the first write if the key has another type
local now = now_ms()
local state, before, more, _, entered = settle(k, prefix, gid, now, "cancelled", grace)
park(k, gid, state, more, "")
if before ~= "ACTIVE" or state == "COMPLETED" then
  return redis.error_reply("INVALIDSTATE " .. state)
end
record(k, now, "cancel", { by = by })
local group = snapshot(k, gid)
return cjson.encode({ state = state, entered = entered, changed = true, settledAt = now,
  ranFor = saga.has_ended(state) and now - (group.createdAt or now) or nil, group = group })
