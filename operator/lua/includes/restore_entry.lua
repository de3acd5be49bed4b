--[[
  Put a job into the part of a ledger that its queue shows; leave it out if its hash is gone.
]]
-- @include split_job_key
local function restore_entry(prefix, key, sealed, open, done, failed)
  local queue, id = split_job_key(prefix, key)
  local base = prefix .. ":" .. queue .. ":"
  local job = redis.call("HMGET", key, "parentKey", "returnvalue", "name")
  local failed_at = redis.call("ZSCORE", base .. "failed", id)
  if not job[3] then return end
  if job[1] == sealed or redis.call("ZSCORE", base .. "completed", id) then
    redis.call("HSETNX", done, key, job[2] or "null")
  elseif failed_at then
    redis.call("ZADD", failed, failed_at, key)
  else
    redis.call("SADD", open, key)
  end
end
