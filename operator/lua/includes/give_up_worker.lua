--[[
  Check the worker of an active member of a group that was given up. After the grace without a lock, no worker
  will finish the member: it leaves its queue. It may have had effects, so it counts as started and failed.

  Returns whether the member is still active.
]]
-- @include job_keys
local function give_up_worker(k, base, id, now, grace)
  local key = base .. id
  local since = redis.call("HGET", k.parent, "unlocked:" .. key)
  if redis.call("EXISTS", key .. ":lock") == 1 then
    if since then redis.call("HDEL", k.parent, "unlocked:" .. key) end
  elseif not since then
    redis.call("HSET", k.parent, "unlocked:" .. key, now)
  elseif now - tonumber(since) >= grace then
    redis.call("LREM", base .. "active", 1, id)
    redis.call("SREM", base .. "stalled", id)
    redis.call("UNLINK", job_keys(key))
    if redis.call("SREM", k.open, key) == 1 then redis.call("ZADD", k.failed, now, key) end
    redis.call("XADD", base .. "events", "MAXLEN", "~", 10000, "*", "event", "removed", "jobId", id, "prev", "active")
    return false
  end
  return true
end
