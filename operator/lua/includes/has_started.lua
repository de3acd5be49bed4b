--[[
  Return whether the hash of a job shows that a worker took it. A manual retry deletes some of these traces,
  but not all.
]]
local function has_started(key)
  for _, trace in ipairs(redis.call("HMGET", key, "ats", "atm", "stc", "stacktrace", "processedOn")) do
    if trace and trace ~= "0" then return true end
  end
  return false
end
