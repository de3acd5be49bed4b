--[[
  Read the state and the counts of a group. The counts are right even while no driver runs.

  KEYS[1] parent  hash, the pseudo parent of the group's members
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] gid     id of the group

  Returns  nothing if there is no such group, or JSON:
           group    snapshot
           derived  the state that settling would give the group; a caller that gets another state than that
                    of the snapshot should settle the group
  Errors   NEWERFORMAT
]]
-- @include find_group
-- @include snapshot
-- @include derive_state
local parent, prefix, gid = KEYS[1], ARGV[1], ARGV[2]

local k, problem = find_group(parent, prefix, gid)
if problem == "NEWERFORMAT" then return redis.error_reply("NEWERFORMAT " .. gid) end
if problem then return false end
local group = snapshot(k, gid)
return cjson.encode({ group = group, derived = derive_state(k, group) })
