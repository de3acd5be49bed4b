--[[
  Return the results of the undos as JSON: the failed ones first, then those that people resolved, at most 100.
]]
-- @include split_job_key
local function undo_results(k, prefix)
  local results = {}
  local function add(keys, status)
    for _, key in ipairs(keys) do
      if #results >= 100 then return end
      local _, id = split_job_key(prefix, key)
      results[#results + 1] = '{"jobId":"' .. id .. '","status":"' .. status .. '"}'
    end
  end
  local failed, resolved = redis.call("ZRANGE", k.undo_failed, 0, -1), {}
  if #failed > 0 and redis.call("EXISTS", k.resolved) == 1 then
    for n = #failed, 1, -1 do
      if redis.call("HEXISTS", k.resolved, failed[n]) == 1 then table.insert(resolved, 1, table.remove(failed, n)) end
    end
  end
  add(failed, "failed")
  add(resolved, "resolved")
  add(redis.call("HKEYS", k.undo_done), "completed")
  return "[" .. table.concat(results, ",") .. "]"
end
