--[[
  Remove an ended group with its members, undos and keys; one call removes at most 200 jobs. A tombstone
  remains, so that the group cannot be created again.

  KEYS[1] parent     hash, the pseudo parent of the group's members
  ARGV[1] now        milliseconds since the epoch
  ARGV[2] prefix     BullMQ's key prefix
  ARGV[3] gid        id of the group
  ARGV[4] remembers  milliseconds the tombstone is kept

  Returns  1 if jobs are left for another call, 0 if the group is gone
  Errors   GROUPNOTFOUND  INVALIDSTATE  NEWERFORMAT
]]
-- @include find_group
-- @include remove_part
-- @include saga
local parent, now, prefix, gid, remembers = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local k, problem = find_group(parent, prefix, gid)
if problem then return redis.error_reply(problem .. " " .. gid) end
local state = redis.call("HGET", k.group, "state")
if not saga.has_ended(state) then return redis.error_reply("INVALIDSTATE " .. state) end
local budget = { jobs = 200, entries = 300000, longest = 300000, events = 5000 }
return remove_part(k, prefix, gid, now, remembers, budget) and 1 or 0
