--[[
  Return whether a failed member never ran: a worker that takes a doomed job counts the start, but fails the job
  at once.
]]
-- @include names
local function was_refused(gid, key)
  local job = redis.call("HMGET", key, "ats", "failedReason")
  return job[1] == "1" and job[2] == names.doom(gid)
end
