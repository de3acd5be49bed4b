--[[
  Split a job key into its queue and its id; an id has no colon.
]]
local function split_job_key(prefix, job_key)
  local id = string.match(job_key, "[^:]+$")
  return string.sub(job_key, #prefix + 2, -#id - 2), id
end
