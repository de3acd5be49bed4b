--[[
  Put a job into the part of a ledger that its queue shows. It is left out if its hash is gone, or names another
  parent than `parent` or `sealed`: somebody removed it from its parent, or added another job with its id.
]]
-- @include split_job_key
local function restore_entry(prefix, key, parent, sealed, open, done, failed)
  local queue, id = split_job_key(prefix, key)
  local base = prefix .. ":" .. queue .. ":"
  local job = redis.call("HMGET", key, "parentKey", "returnvalue")
  local failed_at = redis.call("ZSCORE", base .. "failed", id)
  if job[1] ~= parent and job[1] ~= sealed then return end
  if job[1] == sealed or redis.call("ZSCORE", base .. "completed", id) then
    redis.call("HSETNX", done, key, job[2] or "null")
  elseif failed_at then
    redis.call("ZADD", failed, failed_at, key)
  else
    redis.call("SADD", open, key)
  end
end
