--[[
  Return the last known return values of members that have completed, by key. `values` has the value of one run
  of each, which is the last one unless somebody ran the member again.

  The hash of a member has the value of its last run. A retry deletes it there, and a removal deletes the hash,
  but not the event.
]]
-- @include read_history
local function last_values(k, prefix, values, budget)
  local last, sought = {}, {}
  for key, value in pairs(values) do
    local job = redis.call("HMGET", key, "parentKey", "returnvalue")
    local is_ours = job[1] == k.parent or job[1] == k.sealed
    last[key] = is_ours and job[2] or value
    if not is_ours or not job[2] then sought[#sought + 1] = key end
  end
  for key, job in pairs(read_history(prefix, sought, budget)) do last[key] = job.value or last[key] end
  return last
end
