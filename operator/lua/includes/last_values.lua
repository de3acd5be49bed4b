--[[
  Return the last known return values of members that have completed, by key. `values` has the value of one run
  of each, which is the last one unless somebody ran the member again.

  The hash of a member has the value of its last run. A retry deletes it there, but not in the event stream.
]]
-- @include split_job_key
-- @include read_history
local function last_values(k, prefix, values, budget)
  local last, sought = {}, {}
  for key, value in pairs(values) do
    local job = redis.call("HMGET", key, "parentKey", "returnvalue")
    local is_ours = job[1] == k.parent or job[1] == k.sealed
    last[key] = is_ours and job[2] or value
    if is_ours and not job[2] then
      local queue, id = split_job_key(prefix, key)
      sought[queue] = sought[queue] or {}
      table.insert(sought[queue], id)
    end
  end
  for queue, ids in pairs(sought) do
    local base = prefix .. ":" .. queue .. ":"
    for id, job in pairs(read_history(base, ids, budget)) do last[base .. id] = job.value or last[base .. id] end
  end
  return last
end
