--[[
  Split a job key into its queue and its id; neither a member's queue nor its id holds a colon.
]]
local function place_of(prefix, job_key)
  local id = string.match(job_key, "[^:]+$")
  return string.sub(job_key, #prefix + 2, -#id - 2), id
end
