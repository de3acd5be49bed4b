--[[
  Return the results of the undos as JSON: the failed ones first, at most 100.
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
  add(redis.call("ZRANGE", k.undo_failed, 0, 99), "failed")
  add(redis.call("HKEYS", k.undo_done), "completed")
  return "[" .. table.concat(results, ",") .. "]"
end
