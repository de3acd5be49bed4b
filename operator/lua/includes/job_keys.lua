--[[
  Return the keys that belong to one job, except its lock: the lock is for the worker that holds the job.
]]
local function job_keys(key)
  return key, key .. ":logs", key .. ":dependencies", key .. ":processed", key .. ":failed", key .. ":unsuccessful"
end
