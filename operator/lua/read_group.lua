--[[
  Read the state and the counts of a group. The counts of a running group are those of its ledger, so they are
  right even while no driver runs. Those of an ended group are as of the last settle.

  KEYS[1] parent  hash, the pseudo parent of the group's members
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] gid     id of the group

  Returns  nothing if there is no such group, or JSON:
           group    snapshot
           derived  the state that follows from the ledger
           due      whether settling would change the state or the counts, because the ledger has foreign jobs
  Errors   NEWERFORMAT
]]
-- @include find_group
-- @include snapshot
-- @include derive_state
-- @include saga
local parent, prefix, gid = KEYS[1], ARGV[1], ARGV[2]

local k, problem = find_group(parent, prefix, gid)
if problem == "NEWERFORMAT" then return redis.error_reply("NEWERFORMAT " .. gid) end
if problem then return false end
local group = snapshot(k, gid)
local derived = derive_state(k, group)
local due = derived ~= group.state
if not saga.has_ended(group.state) then
  local listed = redis.call("SCARD", k.open) + redis.call("HLEN", k.done) + redis.call("ZCARD", k.failed)
  due = due or listed > group.totalJobs - group.cancelledCount
end
return cjson.encode({ group = group, derived = derived, due = due })
